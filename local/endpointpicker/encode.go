package endpointpicker

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
)

// setHeader returns the option that sets a header.
func setHeader(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: strings.ToLower(name), RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// appendHeaders appends options for headers, sorted. The first value of a name replaces what the message has.
func appendHeaders(to []*corev3.HeaderValueOption, h http.Header) []*corev3.HeaderValueOption {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for i, value := range h[name] {
			o := setHeader(name, value)
			if i > 0 {
				o.AppendAction = corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
			}
			to = append(to, o)
		}
	}
	return to
}

// diffHeaders returns the headers that differ from what the proxy has sent, and the names that are gone.
func diffHeaders(before, after http.Header) (changed http.Header, removed []string) {
	for name, values := range after {
		if !slices.Equal(before[name], values) {
			if changed == nil {
				changed = http.Header{}
			}
			changed[name] = values
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			removed = append(removed, strings.ToLower(name))
		}
	}
	slices.Sort(removed)
	return changed, removed
}

// encodeMutation returns the changes of the head that send a request to its endpoint.
func encodeMutation(d *Decision, before, after http.Header, buffered bool) *extprocv3.HeaderMutation {
	changed, removed := diffHeaders(before, after)
	m := &extprocv3.HeaderMutation{SetHeaders: appendHeaders([]*corev3.HeaderValueOption{setHeader(destinationKey, strings.Join(d.Endpoints, ","))}, changed), RemoveHeaders: removed}
	if d.Target != "" {
		m.SetHeaders = append(m.SetHeaders, setHeader(":path", d.Target))
	}
	if d.Edited && buffered { // in this mode Envoy requires the length to match
		m.SetHeaders = append(m.SetHeaders, setHeader("content-length", strconv.Itoa(len(d.Body))))
	}
	return m
}

// encodeDestination returns the dynamic metadata that name the endpoints.
func encodeDestination(d *Decision) *structpb.Struct {
	at := structpb.NewStringValue(strings.Join(d.Endpoints, ","))
	space := &structpb.Struct{Fields: map[string]*structpb.Value{destinationKey: at}}
	return &structpb.Struct{Fields: map[string]*structpb.Value{destinationSpace: structpb.NewStructValue(space)}}
}

// requestHeadersReply answers the headers of a request; a nil response leaves them.
func requestHeadersReply(c *extprocv3.CommonResponse) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{Response: c}}}
}

func requestBodyReply(c *extprocv3.CommonResponse) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{Response: c}}}
}

func requestTrailersReply() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}}
}

func responseHeadersReply(h http.Header) *extprocv3.ProcessingResponse {
	out := &extprocv3.HeadersResponse{}
	if len(h) > 0 {
		out.Response = &extprocv3.CommonResponse{HeaderMutation: &extprocv3.HeaderMutation{SetHeaders: appendHeaders(nil, h)}}
	}
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: out}}
}

func responseBodyReply(c *extprocv3.CommonResponse) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{Response: c}}}
}

func responseTrailersReply() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}}
}

// streamedBody is a part of a body that the proxy passes on.
func streamedBody(p []byte, end bool) *extprocv3.CommonResponse {
	return &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_StreamedResponse{
		StreamedResponse: &extprocv3.StreamedBodyResponse{Body: p, EndOfStream: end},
	}}}
}

// encodeAnswer answers a request in place of a worker.
func encodeAnswer(a *Answer, details string) *extprocv3.ProcessingResponse {
	a.Header.Del("Content-Length") // Envoy sets it
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extprocv3.ImmediateResponse{
		Status: &typev3.HttpStatus{Code: typev3.StatusCode(a.Status)}, Headers: &extprocv3.HeaderMutation{SetHeaders: appendHeaders(nil, a.Header)},
		Body: a.Body, Details: details,
	}}}
}

// refusalAnswer is the answer to a refused request, as the zone's own listener writes it.
func refusalAnswer(path, requestID string, e *openai.Error) *Answer {
	a := &answerWriter{header: http.Header{}}
	if requestID != "" {
		a.header.Set(forward.HeaderXRequestID, requestID)
	}
	var w http.ResponseWriter = a
	if openai.IsAnthropicPath(path) {
		w = forward.WithAnthropicErrors(w)
	}
	forward.WriteError(w, e)
	return &Answer{Status: a.status, Header: a.header, Body: a.body.Bytes()}
}

// answerWriter keeps an answer.
type answerWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answerWriter) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answerWriter) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *answerWriter) Write(p []byte) (int, error) { return a.body.Write(p) }
