package forward_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
)

func TestReadSLO(t *testing.T) {
	for _, tc := range []struct {
		name string
		h    map[string]string
		want forward.RequestSLO
	}{
		{"nothing", nil, forward.RequestSLO{}},
		{"our deadline", map[string]string{"x-spillway-deadline-ms": "1500"}, forward.RequestSLO{Deadline: 1500 * time.Millisecond}},
		{"a timeout", map[string]string{"x-request-timeout-ms": "1500"}, forward.RequestSLO{Deadline: 1500 * time.Millisecond}},
		{"the sooner of both", map[string]string{"x-spillway-deadline-ms": "900", "x-request-timeout-ms": "1500"}, forward.RequestSLO{Deadline: 900 * time.Millisecond}},
		{"a first token", map[string]string{"x-slo-ttft-ms": "300"}, forward.RequestSLO{TTFT: 300 * time.Millisecond}},
		{"as llm-d writes it", map[string]string{"x-llm-d-slo-ttft-ms": "200", "x-slo-ttft-ms": "300"}, forward.RequestSLO{TTFT: 200 * time.Millisecond}},
		{"the tokens after it", map[string]string{"x-slo-tpot-ms": "50", "x-slo-ttft-ms": "300"}, forward.RequestSLO{TTFT: 300 * time.Millisecond, TPOT: 50 * time.Millisecond}},
		{"the closer of both", map[string]string{"x-slo-tpot-ms": "50", "x-llm-d-slo-tpot-ms": "40"}, forward.RequestSLO{TPOT: 40 * time.Millisecond}},
		{"longer than a day", map[string]string{"x-request-timeout-ms": "2147483647"}, forward.RequestSLO{Deadline: 24 * time.Hour}},
	} {
		h := http.Header{}
		for k, v := range tc.h {
			h.Set(k, v)
		}
		if got, e := forward.ReadSLO(h); e != nil || got != tc.want {
			t.Errorf("%s: %+v (%v), want %+v", tc.name, got, e, tc.want)
		}
	}
}

func TestReadSLOErrorsSayWhatToWrite(t *testing.T) {
	for _, name := range []string{forward.HeaderClientDeadline, forward.HeaderRequestTimeout, forward.HeaderSLOTTFT, forward.HeaderLLMDSLOTTFT, forward.HeaderSLOTPOT, forward.HeaderLLMDSLOTPOT} {
		for _, v := range []string{"", "0", "-1", "1.5", "5s", "soon", "1e3", " 7", "4294967296", strings.Repeat("9", 1000)} {
			h := http.Header{}
			h.Set(name, v)
			_, e := forward.ReadSLO(h)
			if e == nil || e.Status != 400 || e.Code != openai.CodeInvalidValue || e.Param != name || !strings.Contains(e.Message, "whole milliseconds") {
				t.Errorf("%s: %.20q: %+v", name, v, e)
			}
		}
	}
}

func FuzzReadSLO(f *testing.F) {
	f.Add("100", "7", "", "x")
	f.Add("2147483647", "1", "00012", "+3")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		h := http.Header{forward.HeaderClientDeadline: {a}, forward.HeaderRequestTimeout: {b}, forward.HeaderSLOTTFT: {c}, forward.HeaderLLMDSLOTTFT: {d}, forward.HeaderSLOTPOT: {d}, forward.HeaderLLMDSLOTPOT: {a}}
		times, e := forward.ReadSLO(h)
		if e != nil {
			return
		}
		least := func(x, y string) time.Duration {
			m, _ := strconv.Atoi(x)
			n, _ := strconv.Atoi(y)
			return min(time.Duration(min(m, n))*time.Millisecond, 24*time.Hour)
		}
		if times.Deadline != least(a, b) || times.TTFT != least(c, d) || times.TPOT != least(a, d) || times.Deadline <= 0 || times.TTFT <= 0 {
			t.Fatalf("%q %q %q %q are %+v", a, b, c, d, times)
		}
	})
}
