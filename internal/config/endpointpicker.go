package config

import "fmt"

// Bounds of the endpoint picker.
const (
	maxPickerStreams   = 1_000_000
	maxPickerFallbacks = 8
)

func (k *configChecker) checkEndpointPicker(p *EndpointPicker, ownCert bool) {
	k.checkListenAddr("endpoint_picker.listen", p.Listen, "tcp", false)
	if p.Listen == "" {
		if p.Plain || p.FailOpen || p.TLS != (EndpointPickerTLS{}) {
			k.addProblem("$.endpoint_picker", "endpoint_picker has no listen: no proxy can ask for endpoints", "write listen: host:port, such as 0.0.0.0:9002, or take the section out")
		}
		return
	}
	switch {
	case (p.TLS.Cert == "") != (p.TLS.Key == ""):
		k.addProblem("$.endpoint_picker.tls", "cert and key belong together", "write both files, or neither for the instance's own certificate")
	case p.Plain && p.TLS != (EndpointPickerTLS{}):
		k.addProblem("$.endpoint_picker.plain", "plain serves without TLS, and tls names certificates", "take one of them out")
	case !p.Plain && p.TLS.Cert == "" && !ownCert:
		k.addProblem("$.endpoint_picker.tls", "the endpoint picker has no certificate", "write tls: {cert: FILE, key: FILE}, or plain: true where only the proxy reaches the address")
	}
	if p.MaxStreams < 1 || p.MaxStreams > maxPickerStreams {
		k.addProblem("$.endpoint_picker.max_streams", fmt.Sprintf("max_streams %d is out of range", p.MaxStreams), "write 1 to 1000000")
	}
	if p.Fallbacks < 0 || p.Fallbacks > maxPickerFallbacks {
		k.addProblem("$.endpoint_picker.fallbacks", fmt.Sprintf("fallbacks %d is out of range", p.Fallbacks), "write 0 to 8")
	}
}
