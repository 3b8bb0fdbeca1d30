// Package tracetest has a receiver of OTLP traces for tests.
package tracetest

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// ReceivedSpan is a span with the tier that exported it.
type ReceivedSpan struct {
	*otlp.Span
	Tier string
}

// TraceHex and SpanHex are the ids as in a traceparent header.
func (s ReceivedSpan) TraceHex() string  { return hex.EncodeToString(s.TraceId) }
func (s ReceivedSpan) SpanHex() string   { return hex.EncodeToString(s.SpanId) }
func (s ReceivedSpan) ParentHex() string { return hex.EncodeToString(s.ParentSpanId) }

// FindAttr returns the text of an attribute, or its number as a float, "" or 0 without one.
func (s ReceivedSpan) FindAttr(key string) (text string, number float64) {
	for _, a := range s.Attributes {
		if a.Key == key {
			v := a.Value
			return v.GetStringValue(), float64(v.GetIntValue()) + v.GetDoubleValue()
		}
	}
	return "", 0
}

// Receiver receives traces over gRPC or HTTP.
type Receiver struct {
	collector.UnimplementedTraceServiceServer
	// URL is the endpoint for a tracer.
	URL string

	mu     sync.Mutex
	spans  []ReceivedSpan
	header http.Header
}

// StartHTTP starts a receiver of OTLP over HTTP, until the end of the test.
func StartHTTP(t testing.TB) *Receiver {
	r := &Receiver{}
	s := httptest.NewServer(http.HandlerFunc(r.serveHTTP))
	t.Cleanup(s.Close)
	r.URL = s.URL
	return r
}

// StartGRPC starts a receiver of OTLP over gRPC, until the end of the test.
func StartGRPC(t testing.TB) *Receiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Receiver{URL: "http://" + l.Addr().String()}
	s := grpc.NewServer()
	collector.RegisterTraceServiceServer(s, r)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }() // ends with Stop
	t.Cleanup(func() { s.Stop(); <-done })
	return r
}

// Export implements the gRPC service.
func (r *Receiver) Export(_ context.Context, q *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.addRequest(q)
	return &collector.ExportTraceServiceResponse{}, nil
}

func (r *Receiver) serveHTTP(w http.ResponseWriter, h *http.Request) {
	var body io.Reader = h.Body
	if h.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = z
	}
	text, err := io.ReadAll(body)
	var q collector.ExportTraceServiceRequest
	if err != nil || h.URL.Path != "/v1/traces" || proto.Unmarshal(text, &q) != nil {
		http.Error(w, "malformed", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.header = h.Header
	r.mu.Unlock()
	r.addRequest(&q)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (r *Receiver) addRequest(q *collector.ExportTraceServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rs := range q.ResourceSpans {
		tier := ""
		for _, a := range rs.Resource.Attributes {
			if a.Key == "spillway.tier" {
				tier = a.Value.GetStringValue()
			}
		}
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				r.spans = append(r.spans, ReceivedSpan{s, tier})
			}
		}
	}
}

// Spans returns what was received.
func (r *Receiver) Spans() []ReceivedSpan {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]ReceivedSpan(nil), r.spans...)
}

// Header returns the headers of the last export over HTTP.
func (r *Receiver) Header() http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.header
}
