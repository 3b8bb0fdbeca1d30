package forward

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Stop waits for open tunnels within its bound, and then ends the rest with the given cause.
func TestStopWaitsForTunnelsThenEndsThem(t *testing.T) {
	why := errors.New("the house closes")
	for name, c := range map[string]struct {
		ends []time.Duration // when each tunnel ends by itself
		took time.Duration
		cut  int
	}{
		"none":        {nil, 0, 0},
		"all in time": {[]time.Duration{time.Second, 3 * time.Second, 3 * time.Second}, 3 * time.Second, 0},
		"some stay":   {[]time.Duration{time.Second, time.Hour, time.Hour}, 10 * time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ts OpenTunnels
				cut := make(chan error, len(c.ends))
				for _, after := range c.ends {
					ctx, cancel := context.WithCancelCause(t.Context())
					leave := ts.AddTunnel(cancel)
					go func() {
						defer leave()
						select {
						case <-time.After(after):
						case <-ctx.Done():
							cut <- context.Cause(ctx)
						}
					}()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				began := time.Now()
				err := ts.Stop(ctx, why)
				if took := time.Since(began); took != c.took {
					t.Errorf("took %v, want %v", took, c.took)
				}
				if (err != nil) != (c.cut > 0) {
					t.Errorf("error %v, want %d to be cut", err, c.cut)
				}
				synctest.Wait()
				if len(cut) != c.cut || ts.Len() != 0 {
					t.Fatalf("%d were cut, %d are open; want %d and 0", len(cut), ts.Len(), c.cut)
				}
				for range c.cut {
					if cause := <-cut; cause != why {
						t.Errorf("ended because of %v", cause)
					}
				}
			})
		})
	}
}
