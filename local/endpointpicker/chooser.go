package endpointpicker

import (
	"context"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

// Chooser begins requests. Its methods are called concurrently.
type Chooser interface {
	// OpenRequest begins a request by its head. If it returns a refusal, there is no request to end.
	OpenRequest(h *RequestHead) (PickRequest, *PickRefusal)
	// BodyTimeout bounds the time for a body to arrive.
	BodyTimeout() time.Duration
}

// PickRequest is one request of a proxy, from its head to the end of its answer. One goroutine calls its methods.
type PickRequest interface {
	// AddBody adds a part of the body. It may keep p.
	AddBody(p []byte) *PickRefusal
	// Choose waits in the queue until a worker has room, the request is refused or ctx ends. It is called once, and not after a
	// refusal of AddBody.
	Choose(ctx context.Context) (*Decision, *PickRefusal)
	// Cancelled is closed when the request is given up after Choose, because its worker stalls, or the worker or the zone is
	// drained or stops.
	Cancelled() <-chan struct{}
	// CancelRefusal is the answer to a request that was given up before its answer began; nil if the proxy goes on without the
	// picker, because only this instance stops.
	CancelRefusal() *openai.Error
	// RecordHead records the head of the answer and returns headers for the client.
	RecordHead(h *AnswerHead) http.Header
	// RecordAnswer records a part of the answer's body.
	RecordAnswer(p []byte)
	// End ends the request and releases all that it holds. Later calls do nothing.
	End(how Ending)
}

// RequestHead is the head of a request as the proxy has sent it.
type RequestHead struct {
	// Request has method, URL, host and headers. Changes of its headers are passed on to the worker.
	Request *http.Request
	// HasBody is set if the body will follow, and HeadersOnly if the request has one that the proxy does not send here.
	HasBody, HeadersOnly bool
	// Subset are the endpoints from which the proxy allows a choice, if Limited is set. Otherwise all workers may be chosen.
	Subset  []string
	Limited bool
}

// Decision is where a request goes.
type Decision struct {
	// Endpoints are addresses and ports: first the choice, then those that the proxy may try if it does not answer.
	Endpoints []string
	// Target is the request target; empty leaves it.
	Target string
	// Body replaces the request's body if Edited is set. Otherwise it is the body as it came.
	Body   []byte
	Edited bool
	// Answer answers the request instead of a worker; nil otherwise.
	Answer *Answer
}

// Answer is an answer of the picker itself.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// PickRefusal is why a request gets no endpoint.
type PickRefusal struct {
	Error *openai.Error
	// Unable is set if the picker cannot decide now, for a cause of its own. A picker that fails open then lets the proxy
	// choose.
	Unable bool
}

// AnswerHead is the head of an answer as the proxy has received or made it.
type AnswerHead struct {
	Status int
	Header http.Header
	// Served is the endpoint that answered, where the proxy reports it.
	Served string
	// Details is Envoy's response.code_details, where the proxy sends that attribute: "via_upstream" for an answer of the
	// worker.
	Details string
}

// Ending is how a request ended.
type Ending uint8

const (
	// Broken: the stream ended before the answer, because the client left, the proxy stopped or the worker broke off. The
	// protocol does not tell these apart.
	Broken Ending = iota
	// Complete: the answer ended.
	Complete
	// Refused: the request got no endpoint.
	Refused
	// GivenUp: see PickRequest.Cancelled.
	GivenUp
)
