package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/toolsd/toolsd/platform"
)

// web makes the HTTP clients of a Set. They share one pool of connections, and a
// new one when the user's environment names another proxy or certificates.
type web struct {
	mu        sync.Mutex
	transport *http.Transport
	made      string // of which variables
}

const (
	dialTimeout = 10 * time.Second
	// silence is how long a connection of HTTP/2 may bring nothing before it is asked
	// for a sign of life, and pong how long that may take. All requests to a host
	// share one: when it died without a word, each new attempt would hang on it too,
	// until the system gives it up after a quarter of an hour. Both together are less
	// than a start may take.
	silence = 30 * time.Second
	pong    = 10 * time.Second
	// maxHeader bounds a response's header: nothing of ours needs more.
	maxHeader = 256 << 10
)

// client returns a client that follows the environment's proxies and extra
// certificates.
func (w *web) client(env platform.Environ) *http.Client {
	from := proxiesFrom(env)
	cas := []string{env.Get("SSL_CERT_FILE"), env.Get("NODE_EXTRA_CA_CERTS")}
	made := fmt.Sprint(from, cas)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.transport == nil || w.made != made {
		if w.transport != nil {
			w.transport.CloseIdleConnections()
		}
		w.made = made
		w.transport = &http.Transport{
			Proxy:                  from.proxy,
			DialContext:            (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout:    dialTimeout,
			TLSClientConfig:        &tls.Config{RootCAs: roots(cas), MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2:      true,
			HTTP2:                  &http.HTTP2Config{SendPingTimeout: silence, PingTimeout: pong},
			MaxIdleConnsPerHost:    4,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: maxHeader,
			// No limit for the whole of a response: a call has its own.
		}
	}
	return &http.Client{Transport: w.transport, CheckRedirect: redirect}
}

// forget has the next client make connections of its own: those of before a sleep of
// the machine are most likely dead, also where a stream still waits on one.
func (w *web) forget() {
	w.closeIdle()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.transport = nil
}

func (w *web) closeIdle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.transport != nil {
		w.transport.CloseIdleConnections()
	}
}

// roots are the system's certificates and those of files, as companies need
// whose proxies open TLS; nil means the system's.
func roots(files []string) *x509.CertPool {
	var pool *x509.CertPool
	for _, file := range files {
		if file == "" {
			continue
		}
		pem, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if pool == nil {
			if pool, err = x509.SystemCertPool(); err != nil {
				pool = x509.NewCertPool()
			}
		}
		pool.AppendCertsFromPEM(pem)
	}
	return pool
}

// maxRedirects is ten in most programs; a server that needs more than a few has
// a loop.
const maxRedirects = 5

// redirect follows what keeps the method, and keeps the headers of the entry,
// where its credentials are, from any other host.
func redirect(next *http.Request, via []*http.Request) error {
	first := via[0]
	if next.Method != first.Method {
		return http.ErrUseLastResponse // 301 and 302 would make a GET of our POST
	}
	if len(via) > maxRedirects {
		return fmt.Errorf("it redirects more than %d times", maxRedirects)
	}
	if next.URL.Host == first.URL.Host && next.URL.Scheme == first.URL.Scheme {
		return nil
	}
	if first.URL.Scheme == "https" && next.URL.Scheme != "https" {
		return fmt.Errorf("it redirects from https to %s://%s, which is not followed", next.URL.Scheme, next.URL.Host)
	}
	kept := http.Header{}
	// Those of the protocol: the session is one that this host, or another it
	// redirects to, has given out.
	for _, name := range []string{"Accept", "Content-Type", headerVersion, headerSession, "Mcp-Method", "Mcp-Name", "Last-Event-Id"} {
		if v := next.Header.Get(name); v != "" {
			kept.Set(name, v)
		}
	}
	next.Header = kept
	return nil
}

// proxies are the proxy settings of an environment. net/http would read those of
// this process, and only once.
type proxies struct{ http, https, all, no string }

func proxiesFrom(env platform.Environ) proxies {
	get := func(name string) string {
		if v := env.Get(strings.ToLower(name)); v != "" {
			return v
		}
		return env.Get(name)
	}
	return proxies{get("HTTP_PROXY"), get("HTTPS_PROXY"), get("ALL_PROXY"), get("NO_PROXY")}
}

func (p proxies) proxy(r *http.Request) (*url.URL, error) {
	proxy := p.http
	if r.URL.Scheme == "https" {
		proxy = p.https
	}
	if proxy == "" {
		proxy = p.all
	}
	if proxy == "" || p.bypass(r.URL) {
		return nil, nil
	}
	if !strings.Contains(proxy, "://") {
		proxy = "http://" + proxy
	}
	u, err := url.Parse(proxy)
	if err != nil {
		return nil, fmt.Errorf("the proxy of the environment is not a url")
	}
	return u, nil
}

// bypass reports whether NO_PROXY, or common sense, excludes the host of u.
func (p proxies) bypass(u *url.URL) bool {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	ip, err := netip.ParseAddr(host)
	isIP := err == nil
	if host == "localhost" || isIP && ip.IsLoopback() {
		return true
	}
	for entry := range strings.SplitSeq(p.no, ",") {
		entry = strings.ToLower(strings.TrimSpace(entry))
		if entry == "*" {
			return true
		}
		if prefix, err := netip.ParsePrefix(entry); err == nil {
			if isIP && prefix.Contains(ip) {
				return true
			}
			continue
		}
		if h, port, err := net.SplitHostPort(entry); err == nil {
			if port != u.Port() {
				continue
			}
			entry = h
		}
		entry = strings.TrimPrefix(strings.TrimPrefix(entry, "*"), ".")
		if entry != "" && (host == entry || strings.HasSuffix(host, "."+entry)) {
			return true
		}
	}
	return false
}
