package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// otlpHTTPPort is the port of OTLP over HTTP (OpenTelemetry Protocol Specification, OTLP/HTTP Default Port).
const otlpHTTPPort = "4318"

func (t *Tracing) rebasePaths(base string) {
	rebaseFiles(base, &t.CA)
	for name, file := range t.HeaderFiles {
		rebaseFiles(base, &file)
		t.HeaderFiles[name] = file
	}
}

// fillProtocol sets the protocol by the endpoint's port.
func (t *Tracing) fillProtocol() {
	if t.Protocol != "" || t.Endpoint == "" {
		return
	}
	t.Protocol = "grpc"
	if u, err := url.Parse(t.Endpoint); err == nil && u.Port() == otlpHTTPPort {
		t.Protocol = "http"
	}
}

// checkTracing checks the keys of the export of traces.
func (k *configChecker) checkTracing(t *Tracing) {
	if t.Endpoint != "" {
		u, err := url.Parse(t.Endpoint)
		switch {
		case err != nil || u.Hostname() == "" || u.Port() == "" || u.Scheme != "http" && u.Scheme != "https":
			k.addProblem("$.tracing.endpoint", fmt.Sprintf("%q is not the URL of a receiver", t.Endpoint), "write scheme, host and port, such as http://127.0.0.1:4317")
		case u.User != nil || u.RawQuery != "" || u.Fragment != "":
			k.addProblem("$.tracing.endpoint", "the URL has a user, a query or a fragment", "write scheme, host and port; put credentials into files under header_files")
		case t.Protocol == "grpc" && u.Path != "" && u.Path != "/":
			k.addProblem("$.tracing.endpoint", fmt.Sprintf("the URL has the path %s, which gRPC does not use", u.Path), "take the path out, or write protocol: http")
		}
	}
	if t.Protocol != "" && t.Protocol != "grpc" && t.Protocol != "http" {
		k.addProblem("$.tracing.protocol", fmt.Sprintf("unknown protocol %q", t.Protocol), "write grpc or http")
	}
	if !(t.Sample >= 0 && t.Sample <= 1) {
		k.addProblem("$.tracing.sample", fmt.Sprintf("sample %v is not between 0 and 1", t.Sample), "write the share of requests to trace, such as 0.01 for 1 %; errors: true adds those that fail")
	}
	for _, name := range slices.Sorted(maps.Keys(t.HeaderFiles)) {
		if name == "" || strings.ContainsFunc(name, isNoTokenRune) {
			k.addProblem("$.tracing.header_files."+strict.QuoteKey(name), fmt.Sprintf("%q is not the name of a header", name), "write a name such as authorization, and the file of its value")
		}
	}
}

// isNoTokenRune reports whether the name of a header cannot have this character (RFC 9110, 5.6.2).
func isNoTokenRune(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r)
}
