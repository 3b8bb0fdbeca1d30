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
)

func TestRefusalsAreCountedAndLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	r := newRefusals(slog.New(slog.NewTextHandler(&out, nil)))
	verdict := errors.New("only global nodes")
	for port := range 5 {
		r.add(fmt.Sprintf("192.0.2.1:%d", 4000+port), verdict)
	}
	r.add("192.0.2.2:4000", verdict)
	for _, err := range []error{
		nil, io.EOF, net.ErrClosed, context.DeadlineExceeded, fmt.Errorf("handshake: %w", io.ErrUnexpectedEOF),
		&net.OpError{Op: "remote error", Err: errors.New("bad certificate")},
	} {
		r.add("192.0.2.3:4000", err)
	}
	if got := r.count.Load(); got != 6 {
		t.Errorf("%d refusals counted, want 6: verdicts, not lost connections", got)
	}
	if got := strings.Count(out.String(), "peer refused"); got != 2 {
		t.Errorf("%d lines logged, want one for each of 2 peers:\n%s", got, out.String())
	}
	for i := range 2 * maxRemembered {
		r.add(fmt.Sprintf("192.0.2.9:%d", i), fmt.Errorf("rubbish %d", i))
	}
	if len(r.seen) != maxRemembered || r.count.Load() != 6+2*maxRemembered {
		t.Errorf("%d refusals remembered and %d counted", len(r.seen), r.count.Load())
	}
}
