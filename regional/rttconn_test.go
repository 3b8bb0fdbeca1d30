package regional_test

import (
	"crypto/tls"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/regional"
)

// TestClientRTTsReachGlobalTier: the round-trip times that the kernel measures on clients' connections reach the
// global tier, by cell.
func TestClientRTTsReachGlobalTier(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("round trips are read on Linux")
	}
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	w.startLocal(g, "fra", "fra-a", http.HandlerFunc(replyCompletion), roomyModel("small"))
	w.waitUntilServed(g, "small")
	for range 3 { // connections are measured when they close, and one when it becomes idle
		resp, _ := w.getAnswer(g, clientCall{body: askBody, key: "key-acme", header: http.Header{"Connection": {"close"}}})
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("answered %d", resp.StatusCode)
		}
	}
	loopback := geo.CellName(geo.CellAt(geo.DemoNetworks()[0].Location))
	var got []capacity.CellRTT
	testkit.Eventually(t, "the round trips are told upwards", func() bool {
		if s := w.lastSummary(capacity.Path{Region: "fra", Instance: "fra-gw"}); s != nil {
			got = s.RTTs
		}
		return len(got) == 1 && got[0].Samples >= 3
	})
	if got[0].Cell != loopback || got[0].MedianMicros() <= 0 || got[0].MedianMicros() > time.Second.Microseconds() {
		t.Errorf("told %+v, want a loopback's round trip in %s", got, loopback)
	}
}

// TestQUICRTTsReachGlobalTier: the round-trip time that QUIC measures for an HTTP/3 client reaches the global tier
// by cell, and the report contains no address. The round-trip time of a trusted proxy is not counted.
func TestQUICRTTsReachGlobalTier(t *testing.T) {
	for _, c := range []struct {
		name    string
		outcome string
		proxy   bool
	}{{"a client's", "taken", false}, {"a proxy's", "proxied", true}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			files, reg := w.issuePublicCert("front"), prometheus.NewRegistry()
			g := w.startGateway("fra", func(cfg *regional.Config) {
				cfg.HTTPCert, cfg.HTTPKey, cfg.Registry = files.Cert, files.Key, reg
				if c.proxy {
					cfg.Trusted = trustLoopback("")
				}
			})
			w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
			tr := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, QUICConfig: &quic.Config{HandshakeIdleTimeout: time.Minute}}
			testkit.Eventually(t, "an answer over HTTP/3", func() bool {
				r, err := http.NewRequest(http.MethodPost, "https://"+g.HTTPAddr().String()+"/v1/chat/completions", strings.NewReader(askBody))
				requireNoError(t, err)
				r.Header.Set("Authorization", "Bearer key-acme")
				resp, err := (&http.Client{Transport: tr}).Do(r)
				if err != nil {
					return false
				}
				_ = resp.Body.Close()
				return resp.StatusCode == http.StatusOK
			})
			requireNoError(t, tr.Close())
			testkit.Eventually(t, "the round trip is counted", func() bool { return readMetric(t, reg, "spillway_regional_rtt_samples_total", c.outcome) > 0 })
			if c.proxy {
				if n := readMetric(t, reg, "spillway_regional_rtt_samples_total", "taken"); n > 0 {
					t.Errorf("%v samples of a proxy are taken for clients'", n)
				}
				return
			}
			testkit.Eventually(t, "the round trip is told upwards", func() bool {
				s := w.lastSummary(capacity.Path{Region: "fra", Instance: "fra-gw"})
				return s != nil && len(s.RTTs) == 1 && s.RTTs[0].MedianMicros() > 0
			})
			s := *w.lastSummary(capacity.Path{Region: "fra", Instance: "fra-gw"})
			s.Endpoint = "" // the gateway's own address
			text, err := capacity.EncodeSummary(&s)
			requireNoError(t, err)
			if strings.Contains(string(text), "127.0.0.1") || strings.Contains(string(text), string([]byte{127, 0, 0, 1})) {
				t.Error("a client's address left the region")
			}
		})
	}
}
