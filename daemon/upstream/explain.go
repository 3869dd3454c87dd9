package upstream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/toolsd/toolsd/platform"
)

// explain says in words why a server is not connected, cleaned and redacted, and
// what a person can do about it.
func explain(err error, def Server, clean cleaner) (reason, hint string) {
	reason, hint = words(err, def)
	if reason == "" {
		reason = err.Error()
	}
	if hint == "" {
		hint = "`toolsd restart " + def.Name + "` tries again now"
		if isStdio(def.Def) {
			hint = "`toolsd logs " + def.Name + "` shows what it wrote to stderr; " + hint
		}
	}
	return clean.short(reason, 2*maxReason), clean.short(hint, maxReason)
}

func words(err error, def Server) (reason, hint string) {
	host := place(def.Def.URL)
	if u, err := url.Parse(def.Def.URL); err == nil && u.Host != "" {
		host = u.Host
	}
	var (
		missing   *platform.NotFoundError
		auth      *authError
		status    *statusError
		dns       *net.DNSError
		op        *net.OpError
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		timeout   net.Error
		web       *url.Error
	)
	switch {
	case errors.As(err, &missing):
		return missing.Error(), missing.Hint()
	case errors.As(err, &auth):
		reason = auth.Error()
		if auth.body != "" {
			reason += ": " + auth.body
		}
		where := "headers"
		if def.Def.Source.File != "" {
			where = "headers of " + def.Name + " in " + def.Def.Source.File
		}
		if auth.login && len(def.Def.Headers) == 0 {
			return reason, "it wants a login: put a token into the " + where + " (\"Authorization\": \"Bearer …\")"
		}
		return reason, "it is not tried again: check the credentials in the " + where + ", then type `toolsd restart " + def.Name + "`"
	case errors.As(err, &status):
		if status.location != "" {
			hint = "put the address it redirects to into the entry's url"
		} else if status.code == 404 || status.code == 405 {
			hint = "check the path of the url; many servers listen at /mcp or /sse"
		}
		return status.Error(), hint
	case errors.As(err, &op) && op.Op == "proxyconnect":
		return fmt.Sprintf("the proxy for %s cannot be used: %v", host, op.Err), "check HTTPS_PROXY and NO_PROXY in your shell's environment"
	case errors.As(err, &dns):
		if dns.IsNotFound {
			return "no host of the name " + dns.Name + " is known", "check the url, the network and the VPN"
		}
		return fmt.Sprintf("looking up the name %s: %s", dns.Name, dns.Err), "check the network and the VPN"
	case errors.As(err, &authority):
		return "the certificate of " + host + " is signed by an authority that this machine does not know",
			"behind a company's proxy, name its certificate in SSL_CERT_FILE or NODE_EXTRA_CA_CERTS in your shell's environment"
	case errors.As(err, &hostname):
		return "the certificate of " + host + " is for another host: " + hostname.Error(), "check the url"
	case errors.As(err, &invalid):
		return "the certificate of " + host + " is not valid: " + invalid.Error(), "check the machine's clock; else the server's certificate needs renewal"
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return host + " answers an https url without TLS", "write http:// in the url if that is intended"
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Sprintf("connecting to %s: %v", host, op.Err), "is the server running, and the port right?"
	case errors.As(err, &web):
		// Its text repeats the url, with its query.
		if web.Timeout() {
			return host + " did not answer in time", ""
		}
		return fmt.Sprintf("asking %s: %v", host, web.Err), ""
	case errors.As(err, &timeout) && timeout.Timeout() && !errors.Is(err, context.DeadlineExceeded):
		return host + " did not answer in time", ""
	}
	return "", ""
}
