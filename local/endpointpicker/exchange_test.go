package endpointpicker

import (
	"context"
	"net/http"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-lb/spillway/internal/openai"
)

// countingChooser counts the requests that are open, and those that were used after their end.
type countingChooser struct {
	open, misused int
	refuse        *PickRefusal
}

// countedRequest is one of them.
type countedRequest struct {
	chooser       *countingChooser
	ended, chosen bool
	body          []byte
}

func (c *countingChooser) BodyTimeout() time.Duration { return time.Minute }

func (c *countingChooser) OpenRequest(*RequestHead) (PickRequest, *PickRefusal) {
	c.open++
	return &countedRequest{chooser: c}, nil
}

func (r *countedRequest) check(chosen bool) {
	if r.ended || r.chosen != chosen {
		r.chooser.misused++
	}
}

func (r *countedRequest) AddBody(p []byte) *PickRefusal {
	r.check(false)
	r.body = append(r.body, p...)
	return nil
}

func (r *countedRequest) Choose(context.Context) (*Decision, *PickRefusal) {
	r.check(false)
	r.chosen = true
	if r.chooser.refuse != nil {
		return nil, r.chooser.refuse
	}
	return &Decision{Endpoints: []string{"10.0.0.1:80"}, Body: r.body}, nil
}

func (r *countedRequest) Cancelled() <-chan struct{} { return nil }

func (r *countedRequest) CancelRefusal() *openai.Error { return nil }

func (r *countedRequest) RecordHead(*AnswerHead) http.Header {
	r.check(true)
	return nil
}

func (r *countedRequest) RecordAnswer([]byte) { r.check(true) }

func (r *countedRequest) End(Ending) {
	if r.ended {
		r.chooser.misused++
	}
	r.ended = true
	r.chooser.open--
}

func headMessage(mode bodyMode, kv ...string) *extprocv3.ProcessingRequest {
	h := &corev3.HeaderMap{}
	for i := 0; i < len(kv); i += 2 {
		h.Headers = append(h.Headers, &corev3.HeaderValue{Key: kv[i], RawValue: []byte(kv[i+1])})
	}
	return &extprocv3.ProcessingRequest{
		Request:        &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: h}},
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: mode, ResponseBodyMode: mode},
	}
}

func bodyMessage(text string, end bool) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte(text), EndOfStream: end}}}
}

// runMessages passes messages to an exchange until one ends the stream, and returns the replies.
func runMessages(c *countingChooser, failOpen bool, list ...*extprocv3.ProcessingRequest) (out []*extprocv3.ProcessingResponse, err error) {
	x := &exchange{
		chooser: c, failOpen: failOpen, now: time.Now, onChoice: func(time.Duration) {},
		send: func(m *extprocv3.ProcessingResponse) error { out = append(out, m); return nil },
	}
	for _, m := range list {
		if err = x.handleMessage(context.Background(), m); err != nil {
			break
		}
	}
	x.end(Broken, outcomeBroken)
	return out, err
}

// FuzzMessages: three messages of any bytes neither crash the picker nor leave a request open, and no request is used
// after its end.
func FuzzMessages(f *testing.F) {
	encode := func(m *extprocv3.ProcessingRequest) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	head := encode(headMessage(filterv3.ProcessingMode_FULL_DUPLEX_STREAMED, ":method", "POST", ":path", "/v1/chat/completions"))
	answer := encode(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{
		Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: ":status", Value: "200"}}},
	}}})
	f.Add(head, encode(bodyMessage("{}", true)), answer, false)
	f.Add(encode(headMessage(filterv3.ProcessingMode_BUFFERED, ":method", "GET", ":path", "*")), answer, head, true)
	f.Fuzz(func(t *testing.T, a, b, c []byte, refused bool) {
		var list []*extprocv3.ProcessingRequest
		for _, text := range [][]byte{a, b, c} {
			m := &extprocv3.ProcessingRequest{}
			if proto.Unmarshal(text, m) == nil {
				list = append(list, m)
			}
		}
		chooser := &countingChooser{}
		if refused {
			chooser.refuse = &PickRefusal{Error: openai.NoCapacity("m", time.Second), Unable: true}
		}
		_, _ = runMessages(chooser, refused, list...)
		if chooser.open != 0 || chooser.misused != 0 {
			t.Fatalf("%d requests are open, %d were misused", chooser.open, chooser.misused)
		}
	})
}

// TestFailOpenSendsBodyBack: a picker that cannot decide lets the proxy go on with the same body, and only if it fails open.
func TestFailOpenSendsBodyBack(t *testing.T) {
	list := []*extprocv3.ProcessingRequest{
		headMessage(filterv3.ProcessingMode_FULL_DUPLEX_STREAMED, ":method", "POST", ":path", "/v1/chat/completions"), bodyMessage("ab", false), bodyMessage("cd", true),
	}
	for _, failOpen := range []bool{true, false} {
		c := &countingChooser{refuse: &PickRefusal{Error: openai.NoCapacity("m", time.Second), Unable: true}}
		out, _ := runMessages(c, failOpen, list...)
		if !failOpen {
			if len(out) != 1 || out[0].GetImmediateResponse().GetStatus().GetCode() != 503 {
				t.Errorf("failing closed: %v", out)
			}
			continue
		}
		if len(out) != 3 || out[0].GetRequestHeaders() == nil {
			t.Fatalf("failing open: %v", out)
		}
		text, end := "", false
		for _, m := range out[1:] {
			part := m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
			text, end = text+string(part.GetBody()), part.GetEndOfStream()
		}
		if text != "abcd" || !end {
			t.Errorf("the body came back as %q, end %v", text, end)
		}
	}
}

// TestLongBodyIsSentBackInParts of a size that Envoy takes, and the last one ends it.
func TestLongBodyIsSentBackInParts(t *testing.T) {
	long := make([]byte, 3*maxBodyChunk+1)
	out, err := runMessages(&countingChooser{}, false, headMessage(filterv3.ProcessingMode_FULL_DUPLEX_STREAMED, ":method", "POST", ":path", "/v1/chat/completions"), bodyMessage(string(long), true))
	if err != nil || len(out) != 5 {
		t.Fatalf("%d replies, %v", len(out), err)
	}
	n := 0
	for i, m := range out[1:] {
		part := m.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
		if n += len(part.GetBody()); len(part.GetBody()) > maxBodyChunk || part.GetEndOfStream() != (i == 3) {
			t.Errorf("part %d has %d bytes, end %v", i, len(part.GetBody()), part.GetEndOfStream())
		}
	}
	if n != len(long) {
		t.Errorf("%d of %d bytes came back", n, len(long))
	}
}
