package consensus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRefusalsAreCountedAndLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	r := newRefusalLog(slog.New(slog.NewTextHandler(&out, nil)))
	verdict := errors.New("only global nodes")
	for port := range 5 {
		r.countRefusal(fmt.Sprintf("192.0.2.1:%d", 4000+port), verdict)
	}
	r.countRefusal("192.0.2.2:4000", verdict)
	for _, err := range []error{
		nil, io.EOF, net.ErrClosed, context.DeadlineExceeded, fmt.Errorf("handshake: %w", io.ErrUnexpectedEOF),
		&net.OpError{Op: "remote error", Err: errors.New("bad certificate")},
	} {
		r.countRefusal("192.0.2.3:4000", err)
	}
	if got := r.count.Load(); got != 6 {
		t.Errorf("%d refusals counted, want 6: verdicts, not lost connections", got)
	}
	if got := strings.Count(out.String(), "peer refused"); got != 2 {
		t.Errorf("%d lines logged, want one for each of 2 peers:\n%s", got, out.String())
	}
	for i := range 2 * maxRememberedRefusals {
		r.countRefusal(fmt.Sprintf("192.0.2.9:%d", i), fmt.Errorf("malformed %d", i))
	}
	if len(r.logged) != maxRememberedRefusals || r.count.Load() != 6+2*maxRememberedRefusals {
		t.Errorf("%d refusals kept and %d counted", len(r.logged), r.count.Load())
	}
}

// TestRefusalsAreLoggedAgain: a lasting refusal is logged once an hour, and 256 different ones do not suppress later
// ones for ever.
func TestRefusalsAreLoggedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := newRefusalLog(slog.New(slog.NewTextHandler(&out, nil)))
		lines := func(peer string) int { return strings.Count(out.String(), "peer="+peer+" ") }
		for i := range 2 * maxRememberedRefusals {
			r.countRefusal(fmt.Sprintf("192.0.2.9:%d", i), fmt.Errorf("malformed %d", i))
		}
		late := errors.New("only global nodes")
		r.countRefusal("192.0.2.1:1", late)
		if n := lines("192.0.2.9"); n != maxRememberedRefusals || lines("192.0.2.1") != 0 {
			t.Errorf("%d lines for one peer and %d for the next, want %d and 0", n, lines("192.0.2.1"), maxRememberedRefusals)
		}
		for range 3 {
			time.Sleep(refusalLogInterval / 2)
			r.countRefusal("192.0.2.1:1", late)
			r.countRefusal("192.0.2.9:1", errors.New("malformed 0"))
		}
		if n, again := lines("192.0.2.1"), lines("192.0.2.9")-maxRememberedRefusals; n != 1 || again != 1 {
			t.Errorf("%d lines for the late peer and %d repeated ones in 90 minutes, want 1 and 1", n, again)
		}
		if len(r.logged) > maxRememberedRefusals {
			t.Errorf("%d refusals are kept", len(r.logged))
		}
	})
}
