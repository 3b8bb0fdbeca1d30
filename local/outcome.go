package local

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/sched"
)

// Causes of cancelling an attempt.
var (
	errZoneDrained   = fmt.Errorf("%w: the zone's drain has reached its deadline", forward.ErrGivenUp)
	errStopping      = fmt.Errorf("%w: the instance is stopping", forward.ErrGivenUp)
	errWorkerDrained = fmt.Errorf("%w: the worker's drain has reached its deadline", forward.ErrGivenUp)
	errWorkerStalled = fmt.Errorf("%w: the worker emits nothing", forward.ErrGivenUp)
)

func cancelCause(why sched.CancelReason) error {
	switch why {
	case sched.ZoneDrainOverdue:
		return errZoneDrained
	case sched.InstanceStopping:
		return errStopping
	case sched.WorkerDrainOverdue:
		return errWorkerDrained
	}
	return errWorkerStalled
}

// attemptOutcome describes the end of an attempt to the scheduler.
func (m *responseObserver) attemptOutcome(res *forward.ForwardResult) sched.AttemptOutcome {
	o := sched.AttemptOutcome{
		Status: res.Status, Failed: res.Err != nil, LostRace: res.LostRace, NotStarted: res.NotStarted, ClientGone: res.ClientGone,
		DeadlinePassed: res.DeadlinePassed, IsEventStream: m.isEventStream, KilledWorker: m.killedWorker(res),
		Usage: m.statedUsage(), Events: m.streamMeter.Events, LastByteAt: m.lastByteAt,
	}
	switch o.Evidence = m.collectEvidence(res); o.Evidence {
	case sched.EvidenceUnreachable:
		o.Cause = describeFailure(res.Err, zoneWorkerOf(m.attempt).engineAccess())
	case sched.EvidenceErrorAnswer:
		o.ErrorStatus, o.ErrorAnswer = m.errorAnswer(res)
	}
	return o
}

// collectEvidence returns what the end of an attempt shows about its worker. Only these count:
// - a failed dial,
// - a lost connection or a malformed HTTP response to a request whose body was buffered here,
// - error answers, as classified by health.ClassifyAnswer.
func (m *responseObserver) collectEvidence(res *forward.ForwardResult) sched.Evidence {
	v := m.request
	switch {
	case res.ClientGone, res.NotStarted, res.LostRace, res.DeadlinePassed, errors.Is(res.Err, errZoneDrained), errors.Is(res.Err, errStopping), errors.Is(res.Err, errBuildRequest):
		return sched.NoEvidence
	case res.ErrorEvent != nil:
		return sched.EvidenceErrorAnswer
	case v.replayBody != nil && res.Err != nil:
		if isDialError(res.Err) && (v.forwardKind != forward.GRPC || zoneWorkerOf(m.attempt).declared.GRPC == "") {
			return sched.EvidenceUnreachable
		}
		return sched.NoEvidence
	case res.Refusal != nil:
		return sched.EvidenceErrorAnswer
	case res.Answered: // a stream is not continued on another worker
		return sched.NoEvidence
	case res.Err != nil:
		return sched.EvidenceUnreachable
	case res.Status >= 500:
		return sched.EvidenceErrorAnswer
	}
	return sched.EvidenceSuccess
}

// errorAnswer returns the error with which the worker answered.
func (m *responseObserver) errorAnswer(res *forward.ForwardResult) (status int, body []byte) {
	switch {
	case res.ErrorEvent != nil:
		return http.StatusInternalServerError, parseEventData(res.ErrorEvent)
	case res.Refusal != nil:
		return res.Status, res.Refusal.Body
	}
	return res.Status, m.errorBody
}

// killedWorker reports whether an attempt ended as it does when its worker dies. That is a connection lost before or
// during the answer, or an engine error which reports the loss of its GPU, memory or process.
func (m *responseObserver) killedWorker(res *forward.ForwardResult) bool {
	switch {
	case res.ClientGone, res.NotStarted, res.LostRace, res.DeadlinePassed, res.IsGivenUp(), errors.Is(res.Err, errBuildRequest):
		return false
	case res.ErrorEvent != nil, res.Refusal != nil:
	case res.Answered:
		return false
	case res.Err != nil:
		return !isDialError(res.Err) && !isTLSHandshakeError(res.Err)
	case res.Status < 500:
		return false
	}
	status, body := m.errorAnswer(res)
	k, ok := health.ClassifyAnswer(status, body, m.request.Body)
	return ok && (k == health.OutOfMemory || k == health.HardwareBroken)
}

// parseEventData returns the data of a server-sent event with a single data line.
func parseEventData(ev []byte) []byte {
	return bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(ev), []byte("data:")))
}

// isDialError reports whether err proves that the request cannot have reached the worker.
func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// isTLSHandshakeError reports whether a TLS handshake failed, so that no request was sent.
func isTLSHandshakeError(err error) bool {
	var alert tls.AlertError
	var record tls.RecordHeaderError
	var cert *tls.CertificateVerificationError
	return errors.As(err, &alert) || errors.As(err, &record) || errors.As(err, &cert)
}

// describeFailure describes an error for operators; empty without one.
func describeFailure(err error, access engine.AccessMode) string {
	if err == nil {
		return ""
	}
	if cause := engine.DescribeError(err, access); cause != "" {
		return cause
	}
	return "failed"
}
