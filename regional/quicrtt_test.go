package regional_test

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/regional"
)

// TestQUICRoundTripsGoUp: what QUIC knows of a client over HTTP/3 reaches the global tier by cell, and nothing of what goes
// up tells an address; a trusted proxy's round trip is nobody's.
func TestQUICRoundTripsGoUp(t *testing.T) {
	for _, c := range []struct {
		name    string
		outcome string
		proxy   bool
	}{{"a client's", "taken", false}, {"a proxy's", "proxied", true}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			files, reg := w.frontFiles("front"), prometheus.NewRegistry()
			g := w.gateway("fra", func(cfg *regional.Config) {
				cfg.HTTPCert, cfg.HTTPKey, cfg.Registry = files.Cert, files.Key, reg
				if c.proxy {
					cfg.Trusted = loopback("")
				}
			})
			w.local(g, "fra", "fra-a", reply, small("small"))
			tr := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, QUICConfig: &quic.Config{HandshakeIdleTimeout: time.Minute}}
			eventually(t, "an answer over HTTP/3", func() bool {
				r, err := http.NewRequest(http.MethodPost, "https://"+g.HTTPAddr().String()+"/v1/chat/completions", strings.NewReader(ask))
				must(t, err)
				r.Header.Set("Authorization", "Bearer key-acme")
				resp, err := (&http.Client{Transport: tr}).Do(r)
				if err != nil {
					return false
				}
				_ = resp.Body.Close()
				return resp.StatusCode == http.StatusOK
			})
			must(t, tr.Close())
			eventually(t, "the round trip is counted", func() bool { return figure(t, reg, "spillway_regional_rtt_samples_total", c.outcome) > 0 })
			if c.proxy {
				if n := figure(t, reg, "spillway_regional_rtt_samples_total", "taken"); n > 0 {
					t.Errorf("%v samples of a proxy are taken for clients'", n)
				}
				return
			}
			eventually(t, "the round trip is told upwards", func() bool {
				s := w.heard(capacity.Path{Region: "fra", Instance: "fra-gw"})
				return s != nil && len(s.RTTs) == 1 && s.RTTs[0].Micros() > 0
			})
			s := *w.heard(capacity.Path{Region: "fra", Instance: "fra-gw"})
			s.Endpoint = "" // the gateway's own
			text, err := capacity.Encode(&s)
			must(t, err)
			if strings.Contains(string(text), "127.0.0.1") || strings.Contains(string(text), string([]byte{127, 0, 0, 1})) {
				t.Error("a client's address left the region")
			}
		})
	}
}
