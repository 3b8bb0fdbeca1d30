package forward_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/spec"
)

func TestInferenceHeaders(t *testing.T) {
	s := &spec.Spec{Routing: spec.Routing{Objectives: []spec.ClassObjective{{Name: "premium-traffic", Class: spec.Interactive}}}}
	for _, tc := range []struct {
		header, value string
		class         spec.Class
		named, wrong  bool
	}{
		{"X-Gateway-Inference-Objective", "premium-traffic", spec.Interactive, true, false},
		{"X-Llm-D-Inference-Objective", "batch", spec.Batch, true, false},
		{"X-Llm-D-Inference-Objective", "sheddable", spec.Standard, false, false},
		{"X-Spillway-Class", "premium-traffic", spec.Standard, false, true},
		{"X-Spillway-Class", "batch", spec.Batch, true, false},
		{"X-Other", "batch", spec.Standard, false, false},
	} {
		c, named, err := forward.RequestedClass(http.Header{tc.header: {tc.value}}, s)
		if named != tc.named || (err != nil) != tc.wrong || c != tc.class {
			t.Errorf("%s: %s is %v, %v, %v", tc.header, tc.value, c, named, err)
		}
	}
	for id, want := range map[string]string{"user-7": "user-7", "": "", "a b": "", "é": "", strings.Repeat("x", 129): ""} {
		h := http.Header{"X-Llm-D-Inference-Fairness-Id": {id}}
		if got := forward.FairnessFlow(h, &spec.Tenant{Trusted: true}); got != want {
			t.Errorf("%q is the flow %q", id, got)
		}
		if got := forward.FairnessFlow(h, &spec.Tenant{}) + forward.FairnessFlow(h, nil); got != "" {
			t.Errorf("somebody who is not trusted has the flow %q", got)
		}
	}
	h := http.Header{"X-Gateway-Model-Name-Rewrite": {"small"}, "X-Llm-D-Model-Name-Rewrite": {"large"}}
	if got := forward.TakeModelRewrite(h); got != "small" || len(h) != 0 {
		t.Errorf("%q is asked for, and %v goes on", got, h)
	}
	out := http.Header{forward.HeaderServedEndpoint: {"10.9.9.9:1"}}
	forward.SetServedEndpoint(out, false, "http://10.0.0.1:8000/x")
	if len(out) != 0 {
		t.Errorf("told %v", out)
	}
	if forward.SetServedEndpoint(out, true, "http://10.0.0.1:8000/x"); out.Get(forward.HeaderServedEndpoint) != "10.0.0.1:8000" {
		t.Errorf("told %v", out)
	}
}
