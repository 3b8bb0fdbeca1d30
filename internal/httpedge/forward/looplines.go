package forward

import (
	"net/http"
	"net/textproto"

	"github.com/spillway-lb/spillway/internal/httpedge/http1"
)

// AppendEndpointLines appends the header lines of a client's request that go on to an endpoint, as NewHopRequest selects
// them, to out. It adds to h the headers that routing may read: all except those that it never reads. The request is not
// for a request loop if it returns false: a header names the model, or the body is not plain JSON.
func AppendEndpointLines(out []byte, lines []http1.HeadLine, h http.Header) ([]byte, bool) {
	for i := range lines {
		line := &lines[i]
		if line.Framing {
			continue
		}
		pass, read := true, true
		switch n := line.Name; len(n) {
		case 2:
			pass = !line.Is("te")
		case 6:
			read = !line.Is("accept")
			pass = !line.Is("cookie")
		case 7:
			pass = !line.Is("api-key")
			if line.Is(lowerModelHeader) {
				return out, false
			}
		case 9:
			pass = !line.Is("x-api-key")
		case 10:
			read = !line.Is("user-agent")
			pass = !line.Is("keep-alive")
		case 12:
			if line.Is("content-type") {
				if string(line.Value) != "application/json" {
					return out, false
				}
				read = false
			}
		case 13:
			pass = !line.Is("authorization")
		case 15:
			read = !line.Is("accept-language")
			pass = !line.Is("accept-encoding")
		case 16:
			if line.Is("content-encoding") {
				return out, false
			}
			pass = !line.Is("proxy-connection")
		case 18:
			pass = !line.Is("proxy-authenticate")
		case 19:
			pass = !line.Is("proxy-authorization")
		}
		if len(line.Name) >= len(tierHeaderPrefix) && isTierHeader(string(line.Name[:len(tierHeaderPrefix)])) {
			continue // no client acts as a tier
		}
		if pass {
			out = append(out, line.Line...)
		}
		if !read || !pass {
			continue
		}
		name := textproto.CanonicalMIMEHeaderKey(string(line.Name))
		switch name {
		case HeaderGatewayModel, headerRewrite, headerRewriteLLMD:
			return out, false
		}
		h[name] = append(h[name], string(line.Value))
	}
	return out, true
}

// lowerModelHeader is HeaderClientModel in lower case.
const lowerModelHeader = "x-model"

// clientLines are the header lines of an answer that AppendClientLines has found.
type clientLines struct {
	hasDate, hasContentType, isEventStream bool
}

// AppendClientLines appends the header lines of an endpoint's answer that go on to the client to out, except those that
// Spillway sets itself. It returns false for an answer that a request loop does not relay: a compressed one, one without
// a type, or one of another tier.
func AppendClientLines(out []byte, lines []http1.HeadLine) (_ []byte, isEventStream, ok bool) {
	var found clientLines
	for i := range lines {
		if line := &lines[i]; line.Is("content-type") && !found.hasContentType {
			found.hasContentType = true
			found.isEventStream = len(line.Value) >= len(eventStreamType) && string(line.Value[:len(eventStreamType)]) == eventStreamType
		}
	}
	for i := range lines {
		line := &lines[i]
		if line.Framing {
			continue
		}
		pass := true
		switch len(line.Name) {
		case 2:
			pass = !line.Is("te")
		case 4:
			found.hasDate = found.hasDate || line.Is("date")
		case 10:
			pass = !line.Is("keep-alive")
		case 12:
			pass = !line.Is("x-request-id")
		case 13:
			pass = !found.isEventStream || !line.Is("cache-control")
		case 16:
			if line.Is("content-encoding") {
				return out, false, false
			}
			pass = !line.Is("proxy-connection") && !line.Is("x-spillway-route")
		case 17:
			pass = !found.isEventStream || !line.Is("x-accel-buffering")
		case 18:
			pass = !line.Is("proxy-authenticate")
		case 19:
			pass = !line.Is("proxy-authorization")
		case 37:
			pass = !line.Is("x-gateway-destination-endpoint-served")
		}
		if len(line.Name) >= len(tierHeaderPrefix) && isTierHeader(string(line.Name[:len(tierHeaderPrefix)])) {
			return out, false, false
		}
		if pass {
			out = append(out, line.Line...)
		}
	}
	if !found.hasDate {
		out = http1.AppendDate(out)
	}
	return out, found.isEventStream, found.hasContentType
}

const eventStreamType = "text/event-stream"
