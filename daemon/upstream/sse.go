package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"

	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// sseConn is the older HTTP+SSE transport: one stream brings all messages of the
// server, and names the address for ours.
type sseConn struct {
	httpBase
	post string
}

func openSSE(ctx context.Context, client *http.Client, def clientconfig.Server, n *notes, onChanged func()) (*sseConn, error) {
	c := &sseConn{httpBase: newHTTPBase(client, def)}
	c.peer = newPeer(c, onChanged, n)
	req, done, err := c.request(c.life, http.MethodGet, c.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	// ctx bounds the opening only; the stream lives on.
	stop := context.AfterFunc(ctx, done)
	fail := func(err error) (*sseConn, error) {
		stop()
		done()
		c.shut()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fail(err)
	}
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK || mediaType != "text/event-stream" {
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return fail(fmt.Errorf("%s answered with %s instead of a stream of events", place(c.url), mediaType))
		}
		return fail(c.refusal(resp))
	}
	events := newEventReader(resp.Body)
	for c.post == "" {
		e, err := events.next()
		if err != nil {
			resp.Body.Close()
			return fail(fmt.Errorf("%s ended the stream of events at once: %w", place(c.url), err))
		}
		if e.name != "endpoint" {
			continue
		}
		to, err := resp.Request.URL.Parse(string(bytes.TrimSpace(e.data)))
		if err != nil || !sameOrigin(to, resp.Request.URL) {
			resp.Body.Close()
			return fail(fmt.Errorf("%s names another host as the address for messages, which is refused", place(c.url)))
		}
		c.post = to.String()
	}
	if !stop() {
		resp.Body.Close()
		return fail(context.Cause(ctx))
	}
	c.run(func() {
		defer done()
		defer resp.Body.Close()
		for {
			e, err := events.next()
			switch {
			case err != nil:
				c.fail(fmt.Errorf("the stream of events ended: %w", err))
				return
			case e.over != nil:
				c.tooLarge(e.over)
			case e.name == "message" && len(e.data) > 0 && !c.receive(e.data):
				c.notes.add("garbage", "an event that is no message was dropped: %q", cut(string(e.data[:min(len(e.data), 400)]), 120))
			}
		}
	})
	return c, nil
}

func sameOrigin(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host }

func (c *sseConn) setVersion(string)     {}
func (c *sseConn) close(context.Context) { c.shut() }

func (c *sseConn) send(ctx context.Context, m *outgoing) error {
	over := ctx
	if m.call != nil {
		over = m.call.over
	}
	deliver := func() error {
		req, done, err := c.request(over, http.MethodPost, c.post, m.body)
		if err != nil {
			return err
		}
		defer done()
		if m.call != nil && !m.call.claim() {
			return nil
		}
		resp, err := c.client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode >= 300 {
			return c.refusal(resp)
		}
		return nil
	}
	if m.call == nil {
		return deliver()
	}
	if !c.run(func() {
		if err := deliver(); err != nil && over.Err() == nil {
			var auth *authError
			if errors.As(err, &auth) {
				c.fail(err)
			}
			var refused *RPCError
			var status *statusError
			if errors.As(err, &refused) || errors.As(err, &status) {
				c.finish(m.call, err)
			} else {
				c.finish(m.call, &lostError{cause: err, sent: true})
			}
		}
	}) {
		return errClosed
	}
	return nil
}

func (c *sseConn) try(m *outgoing) bool { return c.send(m.call.over, m) == nil }

func (c *sseConn) offer(m *outgoing) {
	c.offered(func(ctx context.Context) { _ = c.send(ctx, m) })
}
