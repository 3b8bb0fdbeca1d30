package endpointpicker

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// Names of the endpoint picker protocol.
const (
	destinationKey   = "x-gateway-destination-endpoint"
	destinationSpace = "envoy.lb"
	subsetKey        = "x-gateway-destination-endpoint-subset"
	subsetSpace      = "envoy.lb.subset_hint"
	servedKey        = "x-gateway-destination-endpoint-served"
	detailsAttribute = "response.code_details"
)

// bodyMode is how a proxy sends a body.
type bodyMode = filterv3.ProcessingMode_BodySendMode

// readModes returns the body modes of a stream. A proxy too old to state them is taken to use FULL_DUPLEX_STREAMED, which the
// protocol requires.
func readModes(m *extprocv3.ProcessingRequest) (request, answer bodyMode) {
	c := m.GetProtocolConfig()
	if c == nil {
		return filterv3.ProcessingMode_FULL_DUPLEX_STREAMED, filterv3.ProcessingMode_FULL_DUPLEX_STREAMED
	}
	return c.GetRequestBodyMode(), c.GetResponseBodyMode()
}

// isBuffered reports whether the body comes in one message, after the proxy was answered the headers.
func isBuffered(m bodyMode) bool {
	return m == filterv3.ProcessingMode_BUFFERED || m == filterv3.ProcessingMode_BUFFERED_PARTIAL
}

// isDuplex reports whether the proxy passes on only the body that it is sent back.
func isDuplex(m bodyMode) bool { return m == filterv3.ProcessingMode_FULL_DUPLEX_STREAMED }

var errTooManyHeaders = fmt.Errorf("the message has more than %d headers", maxHeaders)

// readHeaders splits headers into those of HTTP and the pseudo-headers.
func readHeaders(in *corev3.HeaderMap) (h http.Header, pseudo map[string]string, err error) {
	list := in.GetHeaders()
	if len(list) > maxHeaders {
		return nil, nil, errTooManyHeaders
	}
	h, pseudo = make(http.Header, len(list)), make(map[string]string, 4)
	values := make([]string, len(list)) // one allocation for all
	for i, kv := range list {
		name, value := kv.GetKey(), kv.GetValue()
		if raw := kv.GetRawValue(); len(raw) > 0 {
			value = string(raw)
		}
		if strings.HasPrefix(name, ":") {
			pseudo[name] = value
			continue
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		if old := h[name]; old != nil {
			h[name] = append(old, value)
			continue
		}
		values[i] = value
		h[name] = values[i : i+1 : i+1]
	}
	return h, pseudo, nil
}

var (
	errNoMethod = errors.New("the request has no :method")
	errNoPath   = errors.New("the request has no valid :path")
)

// readRequestHead reads the head of a request.
func readRequestHead(m *extprocv3.ProcessingRequest, mode bodyMode) (*RequestHead, error) {
	in := m.GetRequestHeaders()
	h, pseudo, err := readHeaders(in.GetHeaders())
	if err != nil {
		return nil, err
	}
	if pseudo[":method"] == "" {
		return nil, errNoMethod
	}
	u, err := url.ParseRequestURI(pseudo[":path"])
	if err != nil || !strings.HasPrefix(pseudo[":path"], "/") {
		return nil, errNoPath
	}
	r := &http.Request{Method: pseudo[":method"], URL: u, Host: pseudo[":authority"], Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1}
	if n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		r.ContentLength = n
	}
	out := &RequestHead{Request: r}
	sends := isBuffered(mode) || isDuplex(mode)
	out.HasBody, out.HeadersOnly = !in.GetEndOfStream() && sends, !in.GetEndOfStream() && !sends
	out.Subset, out.Limited, err = readSubset(m.GetMetadataContext())
	return out, err
}

// readSubset reads the subset hint. A hint of an unknown form limits to nothing, since the proxy requires the choice to keep
// to it.
func readSubset(m *corev3.Metadata) (list []string, limited bool, err error) {
	space, ok := m.GetFilterMetadata()[subsetSpace]
	if !ok {
		return nil, false, nil
	}
	v, ok := space.GetFields()[subsetKey]
	if !ok {
		return nil, false, nil
	}
	items := v.GetListValue().GetValues()
	if len(items) > maxSubset {
		return nil, true, fmt.Errorf("the subset hint has more than %d endpoints", maxSubset)
	}
	for _, item := range items {
		list = appendEndpoints(list, item.GetStringValue())
	}
	if text := v.GetStringValue(); text != "" { // Envoy can make metadata of a header, which is a string
		if strings.Count(text, ",") >= maxSubset {
			return nil, true, fmt.Errorf("the subset hint has more than %d endpoints", maxSubset)
		}
		list = appendEndpoints(list, text)
	}
	return list, true, nil
}

// appendEndpoints appends the valid endpoints of a list separated by commas, in canonical form.
func appendEndpoints(to []string, text string) []string {
	for s := range strings.SplitSeq(text, ",") {
		if at, err := netip.ParseAddrPort(strings.TrimSpace(s)); err == nil {
			to = append(to, at.String())
		}
	}
	return to
}

// readAnswerHead reads the head of an answer.
func readAnswerHead(m *extprocv3.ProcessingRequest) (*AnswerHead, error) {
	h, pseudo, err := readHeaders(m.GetResponseHeaders().GetHeaders())
	if err != nil {
		return nil, err
	}
	out := &AnswerHead{Header: h}
	if out.Status, err = strconv.Atoi(pseudo[":status"]); err != nil || out.Status < 100 || out.Status > 999 {
		return nil, errors.New("the answer has no valid :status")
	}
	served := m.GetMetadataContext().GetFilterMetadata()[destinationSpace].GetFields()[servedKey].GetStringValue()
	if at, err := netip.ParseAddrPort(served); err == nil {
		out.Served = at.String()
	}
	for _, a := range m.GetAttributes() {
		if v, ok := a.GetFields()[detailsAttribute]; ok {
			out.Details = v.GetStringValue()
		}
	}
	return out, nil
}
