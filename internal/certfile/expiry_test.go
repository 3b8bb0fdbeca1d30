package certfile

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// A certificate that is never replaced is warned of 14, 7, 3 and 1 days before its end and each day after it; one that is
// replaced in time is not warned of again.
func TestExpiryWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		end := begin.Add(20 * day)
		var replaced atomic.Pointer[time.Time]
		set := func(at time.Time) { replaced.Store(&at) }
		set(begin.Add(10 * day))
		var text testkit.LogBuffer
		all := ExpirySource(func() CertExpiries {
			return CertExpiries{
				{Name: "tls.cert", EndsAt: func() time.Time { return end }},
				{Name: "http.tls_cert", EndsAt: func() time.Time { return *replaced.Load() }},
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			all.WarnExpiring(ctx, slog.New(slog.NewTextHandler(&text, nil)))
		}()
		count := func(words ...string) (n int) {
			synctest.Wait()
			for line := range strings.Lines(text.String()) {
				found := true
				for _, w := range words {
					found = found && strings.Contains(line, w)
				}
				if found {
					n++
				}
			}
			return n
		}
		time.Sleep(time.Minute)
		if n := count("http.tls_cert", "days_left=10"); n != 1 {
			t.Errorf("%d warnings at once for 10 days", n)
		}
		time.Sleep(day)
		set(begin.Add(90 * day))
		for _, want := range []struct {
			after    time.Duration
			warnings int
		}{{5 * day, 0}, {6*day + 2*time.Hour, 1}, {12 * day, 1}, {13*day + 2*time.Hour, 2}, {17*day + 2*time.Hour, 3}, {19*day + 2*time.Hour, 4}} {
			time.Sleep(time.Until(begin.Add(want.after)))
			if n := count("certificate=tls.cert ", "expires soon"); n != want.warnings {
				t.Errorf("after %v: %d warnings, want %d:\n%s", want.after, n, want.warnings, text.String())
			}
		}
		time.Sleep(time.Until(begin.Add(23*day + 2*time.Hour)))
		if n := count("certificate=tls.cert ", "has expired"); n != 4 {
			t.Errorf("%d warnings in the days after the end", n)
		}
		if n := count("http.tls_cert"); n != 1 {
			t.Errorf("%d warnings of a certificate that was replaced", n)
		}
		cancel()
		<-done
	})
}

func TestExpiryMetric(t *testing.T) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(ExpirySource(func() CertExpiries {
		return CertExpiries{{Name: "tls.cert", EndsAt: func() time.Time { return time.Unix(1_800_000_000, 0) }}}
	}))
	want := `# HELP spillway_certificate_expiry_timestamp_seconds When a certificate of this node ends, in Unix time, by the configuration key that sets it.
# TYPE spillway_certificate_expiry_timestamp_seconds gauge
spillway_certificate_expiry_timestamp_seconds{certificate="tls.cert"} 1.8e+09
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
