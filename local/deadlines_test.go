package local_test

import (
	"strings"
	"testing"
)

func TestInvalidDeadlineIsRefusedWithUsage(t *testing.T) {
	w := newFakeVLLM(t, "w1")
	a := startAgent(t, nil, w)
	for _, name := range []string{"X-Request-Timeout-Ms", "X-Spillway-Deadline-Ms", "X-Slo-Ttft-Ms", "X-Llm-D-Slo-Ttft-Ms", "X-Slo-Tpot-Ms", "X-Llm-D-Slo-Tpot-Ms"} {
		if status, _, text := postWithHeader(t, a, name, "5s"); status != 400 || !strings.Contains(text, name+": write whole milliseconds") {
			t.Errorf("%s: %d %q", name, status, text)
		}
	}
	if n := w.posts.Load(); n != 0 {
		t.Errorf("the worker was sent %d of them", n)
	}
}
