package endpointpicker

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-lb/spillway/internal/openai"
)

// exchange is the state of one stream. One goroutine calls its methods.
type exchange struct {
	chooser  Chooser
	send     func(*extprocv3.ProcessingResponse) error
	failOpen bool
	busy     *openai.Error // refuses the request for lack of streams; nil: there is room
	onChoice func(took time.Duration)
	now      func() time.Time

	phase                   phase
	requestMode, answerMode bodyMode
	head                    *RequestHead
	sentHeaders             http.Header // as the proxy has sent them
	request                 PickRequest // nil before the head and after the end
	heldBody                [][]byte    // parts of a body in FULL_DUPLEX_STREAMED mode that the proxy must be sent back
	outcome                 string
}

// phase is how far a request has come.
type phase uint8

const (
	awaitHead phase = iota
	awaitBody
	awaitAnswer
	inAnswer
	passOn // the proxy goes on without an endpoint or after the end: messages are answered, and nothing is recorded
)

// Outcomes of requests in metrics.
const (
	outcomeComplete = "complete"
	outcomeBroken   = "broken"
	outcomeRefused  = "refused"
	outcomeAnswered = "answered"
	outcomeOpen     = "failed_open"
	outcomeGivenUp  = "given_up"
)

// errAnswered ends a stream whose request was answered by the picker.
var errAnswered = errors.New("the request was answered")

func protocolError(text string) error { return status.Error(codes.InvalidArgument, text) }

// handleMessage handles one message. An error ends the stream; errAnswered ends it without one. ctx ends the wait in the queue.
func (x *exchange) handleMessage(ctx context.Context, m *extprocv3.ProcessingRequest) error {
	if m.GetObservabilityMode() {
		return status.Error(codes.FailedPrecondition, "observability_mode is set: the proxy ignores the endpoint; take it out of the filter's configuration")
	}
	switch k := m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		return x.readHead(ctx, m)
	case *extprocv3.ProcessingRequest_RequestBody:
		return x.readBody(ctx, k.RequestBody)
	case *extprocv3.ProcessingRequest_RequestTrailers:
		return x.readTrailers(ctx)
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		return x.readAnswerHead(m)
	case *extprocv3.ProcessingRequest_ResponseBody:
		return x.readAnswerBody(k.ResponseBody)
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		x.endAnswer()
		return x.send(responseTrailersReply())
	}
	return nil // a window update, which needs no reply, or a kind of a later version
}

// readHead handles the headers of a request.
func (x *exchange) readHead(ctx context.Context, m *extprocv3.ProcessingRequest) error {
	if x.phase != awaitHead {
		return protocolError("request headers came twice")
	}
	x.requestMode, x.answerMode = readModes(m)
	head, err := readRequestHead(m, x.requestMode)
	if err != nil {
		return x.refuse(&PickRefusal{Error: &openai.Error{Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: openai.CodeInvalidValue, Message: err.Error(), NoRetry: true}})
	}
	x.head, x.sentHeaders = head, maps.Clone(head.Request.Header)
	if x.busy != nil {
		return x.refuse(&PickRefusal{Error: x.busy, Unable: true})
	}
	var refusal *PickRefusal
	if x.request, refusal = x.chooser.OpenRequest(head); refusal != nil {
		x.request = nil
		return x.refuse(refusal)
	}
	if !head.HasBody {
		return x.choose(ctx, nil)
	}
	x.phase = awaitBody
	if isBuffered(x.requestMode) {
		return x.send(requestHeadersReply(nil))
	}
	return nil
}

// readBody handles a part of the request's body.
func (x *exchange) readBody(ctx context.Context, b *extprocv3.HttpBody) error {
	switch {
	case x.phase == awaitHead:
		return protocolError("a request body came before the headers")
	case x.phase != awaitBody:
		if isDuplex(x.requestMode) {
			return x.send(requestBodyReply(streamedBody(b.GetBody(), b.GetEndOfStream())))
		}
		return x.send(requestBodyReply(nil))
	}
	if x.failOpen && isDuplex(x.requestMode) && len(b.GetBody()) > 0 {
		x.heldBody = append(x.heldBody, b.GetBody())
	}
	end := b.GetEndOfStream() || isBuffered(x.requestMode)
	if refusal := x.request.AddBody(b.GetBody()); refusal != nil {
		return x.refuseBody(refusal, end)
	}
	if !end {
		return nil
	}
	return x.choose(ctx, nil)
}

// readTrailers handles the trailers of a request. In FULL_DUPLEX_STREAMED mode they end the body.
func (x *exchange) readTrailers(ctx context.Context) error {
	if x.phase == awaitHead {
		return protocolError("request trailers came before the headers")
	}
	if x.phase == awaitBody {
		return x.choose(ctx, requestTrailersReply())
	}
	return x.send(requestTrailersReply())
}

// choose waits for an endpoint and sends it. trailers, when not nil, answers the trailers that have ended the body.
func (x *exchange) choose(ctx context.Context, trailers *extprocv3.ProcessingResponse) error {
	began := x.now()
	d, refusal := x.request.Choose(ctx)
	if refusal != nil {
		if err := x.refuseBody(refusal, trailers == nil); err != nil || trailers == nil {
			return err
		}
		return x.send(trailers)
	}
	if d.Answer != nil {
		x.end(Complete, outcomeAnswered)
		return errors.Join(x.send(encodeAnswer(d.Answer, "spillway_answer")), errAnswered)
	}
	x.onChoice(x.now().Sub(began))
	x.heldBody = nil
	c := &extprocv3.CommonResponse{HeaderMutation: encodeMutation(d, x.sentHeaders, x.head.Request.Header, isBuffered(x.requestMode)), ClearRouteCache: true}
	buffered := x.phase == awaitBody && isBuffered(x.requestMode)
	wasBody := x.phase == awaitBody
	x.phase = awaitAnswer
	if buffered {
		if d.Edited {
			c.BodyMutation = &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: d.Body}}
		}
		reply := requestBodyReply(c)
		reply.DynamicMetadata = encodeDestination(d)
		return x.send(reply)
	}
	reply := requestHeadersReply(c)
	reply.DynamicMetadata = encodeDestination(d)
	if err := x.send(reply); err != nil || !wasBody {
		return err
	}
	if err := x.sendBody(d.Body, trailers == nil); err != nil || trailers == nil {
		return err
	}
	return x.send(trailers)
}

// sendBody sends a body back in FULL_DUPLEX_STREAMED mode. Trailers follow if end is not set.
func (x *exchange) sendBody(body []byte, end bool) error {
	for {
		n := min(len(body), maxBodyChunk)
		last := n == len(body)
		if err := x.send(requestBodyReply(streamedBody(body[:n], last && end))); err != nil || last {
			return err
		}
		body = body[n:]
	}
}

// refuse answers a request that gets no endpoint.
func (x *exchange) refuse(r *PickRefusal) error {
	if r.Unable && x.failOpen {
		return x.open(false)
	}
	x.end(Refused, outcomeRefused)
	return errors.Join(x.send(x.encodeRefusal(r.Error)), errAnswered)
}

func (x *exchange) encodeRefusal(e *openai.Error) *extprocv3.ProcessingResponse {
	path, id := "", ""
	if x.head != nil {
		path, id = x.head.Request.URL.Path, readRequestID(x.head.Request.Header)
	}
	return encodeAnswer(refusalAnswer(path, id, e), "spillway_"+e.Code)
}

// refuseBody is refuse after the headers. ended is set if the whole body has come.
func (x *exchange) refuseBody(r *PickRefusal, ended bool) error {
	if r.Unable && x.failOpen {
		return x.open(ended)
	}
	return x.refuse(r)
}

// open lets the proxy go on without an endpoint, and sends back the body that it has sent.
func (x *exchange) open(ended bool) error {
	before := x.phase
	x.end(Refused, outcomeOpen)
	if before == awaitBody && isBuffered(x.requestMode) {
		return x.send(requestBodyReply(nil))
	}
	if err := x.send(requestHeadersReply(nil)); err != nil {
		return err
	}
	if before != awaitBody {
		return nil
	}
	held := x.heldBody
	x.heldBody = nil
	for i, p := range held {
		if err := x.send(requestBodyReply(streamedBody(p, ended && i == len(held)-1))); err != nil {
			return err
		}
	}
	if len(held) == 0 && ended {
		return x.send(requestBodyReply(streamedBody(nil, true)))
	}
	return nil
}

// readAnswerHead handles the headers of an answer. Of a request that got no endpoint yet, it is the proxy's own answer.
func (x *exchange) readAnswerHead(m *extprocv3.ProcessingRequest) error {
	if x.phase == awaitHead { // a filter that processes answers only
		_, x.answerMode = readModes(m)
		x.phase = passOn
	}
	if x.phase == awaitBody {
		x.end(Broken, outcomeBroken)
	}
	if x.phase == passOn {
		return x.send(responseHeadersReply(nil))
	}
	if x.phase == inAnswer {
		return protocolError("response headers came twice")
	}
	head, err := readAnswerHead(m)
	if err != nil {
		return protocolError(err.Error())
	}
	if head.Status < 200 {
		return x.send(responseHeadersReply(nil))
	}
	x.phase = inAnswer
	out := x.request.RecordHead(head)
	if m.GetResponseHeaders().GetEndOfStream() {
		x.endAnswer()
	}
	return x.send(responseHeadersReply(out))
}

// readAnswerBody handles a part of an answer's body.
func (x *exchange) readAnswerBody(b *extprocv3.HttpBody) error {
	if x.phase != inAnswer && x.phase != passOn {
		return protocolError("a response body came before its headers")
	}
	if x.phase == inAnswer {
		if len(b.GetBody()) > 0 {
			x.request.RecordAnswer(b.GetBody())
		}
		if b.GetEndOfStream() || isBuffered(x.answerMode) {
			x.endAnswer()
		}
	}
	if isDuplex(x.answerMode) {
		return x.send(responseBodyReply(streamedBody(b.GetBody(), b.GetEndOfStream())))
	}
	return x.send(responseBodyReply(nil))
}

// endAnswer ends a request whose answer has ended.
func (x *exchange) endAnswer() {
	if x.phase == inAnswer {
		x.end(Complete, outcomeComplete)
	}
}

// giveUp ends a request that was cancelled after its choice.
func (x *exchange) giveUp() error {
	if x.request == nil {
		return nil
	}
	before, e := x.phase, x.request.CancelRefusal()
	x.end(GivenUp, outcomeGivenUp)
	switch {
	case e == nil: // the proxy goes on without this stream
		return errAnswered
	case before == awaitAnswer:
		return errors.Join(x.send(x.encodeRefusal(e)), errAnswered)
	}
	return status.Error(codes.Aborted, e.Message)
}

// cancelled is closed when the request is given up; nil while that is impossible.
func (x *exchange) cancelled() <-chan struct{} {
	if x.request == nil || x.phase < awaitAnswer {
		return nil
	}
	return x.request.Cancelled()
}

// end ends the request, once. What the proxy sends later is passed on.
func (x *exchange) end(how Ending, outcome string) {
	x.phase = passOn
	if x.outcome == "" {
		x.outcome = outcome
	}
	if r := x.request; r != nil {
		x.request = nil
		r.End(how)
	}
}

// readRequestID returns the request's id as the proxy has set it.
func readRequestID(h http.Header) string {
	if v := h["X-Request-Id"]; len(v) > 0 {
		return v[0]
	}
	return ""
}
