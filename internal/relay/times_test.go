package relay_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
)

func TestReadTimes(t *testing.T) {
	for _, tc := range []struct {
		name string
		h    map[string]string
		want relay.Times
	}{
		{"nothing", nil, relay.Times{}},
		{"our deadline", map[string]string{"x-spillway-deadline-ms": "1500"}, relay.Times{Deadline: 1500 * time.Millisecond}},
		{"a timeout", map[string]string{"x-request-timeout-ms": "1500"}, relay.Times{Deadline: 1500 * time.Millisecond}},
		{"the sooner of both", map[string]string{"x-spillway-deadline-ms": "900", "x-request-timeout-ms": "1500"}, relay.Times{Deadline: 900 * time.Millisecond}},
		{"a first token", map[string]string{"x-slo-ttft-ms": "300"}, relay.Times{FirstToken: 300 * time.Millisecond}},
		{"as llm-d writes it", map[string]string{"x-llm-d-slo-ttft-ms": "200", "x-slo-ttft-ms": "300"}, relay.Times{FirstToken: 200 * time.Millisecond}},
		{"the tokens after it", map[string]string{"x-slo-tpot-ms": "50", "x-slo-ttft-ms": "300"}, relay.Times{FirstToken: 300 * time.Millisecond, Step: 50 * time.Millisecond}},
		{"the closer of both", map[string]string{"x-slo-tpot-ms": "50", "x-llm-d-slo-tpot-ms": "40"}, relay.Times{Step: 40 * time.Millisecond}},
		{"longer than a day", map[string]string{"x-request-timeout-ms": "2147483647"}, relay.Times{Deadline: 24 * time.Hour}},
	} {
		h := http.Header{}
		for k, v := range tc.h {
			h.Set(k, v)
		}
		if got, e := relay.ReadTimes(h); e != nil || got != tc.want {
			t.Errorf("%s: %+v (%v), want %+v", tc.name, got, e, tc.want)
		}
	}
}

func TestReadTimesSaysWhatToWrite(t *testing.T) {
	for _, name := range []string{relay.HeaderClientDeadline, relay.HeaderRequestTimeout, relay.HeaderSLOTTFT, relay.HeaderLLMDSLOTTFT, relay.HeaderSLOTPOT, relay.HeaderLLMDSLOTPOT} {
		for _, v := range []string{"", "0", "-1", "1.5", "5s", "soon", "1e3", " 7", "4294967296", strings.Repeat("9", 1000)} {
			h := http.Header{}
			h.Set(name, v)
			_, e := relay.ReadTimes(h)
			if e == nil || e.Status != 400 || e.Code != openai.CodeInvalidValue || e.Param != name || !strings.Contains(e.Message, "whole milliseconds") {
				t.Errorf("%s: %.20q: %+v", name, v, e)
			}
		}
	}
}

func FuzzReadTimes(f *testing.F) {
	f.Add("100", "7", "", "x")
	f.Add("2147483647", "1", "00012", "+3")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		h := http.Header{relay.HeaderClientDeadline: {a}, relay.HeaderRequestTimeout: {b}, relay.HeaderSLOTTFT: {c}, relay.HeaderLLMDSLOTTFT: {d}, relay.HeaderSLOTPOT: {d}, relay.HeaderLLMDSLOTPOT: {a}}
		times, e := relay.ReadTimes(h)
		if e != nil {
			return
		}
		least := func(x, y string) time.Duration {
			m, _ := strconv.Atoi(x)
			n, _ := strconv.Atoi(y)
			return min(time.Duration(min(m, n))*time.Millisecond, 24*time.Hour)
		}
		if times.Deadline != least(a, b) || times.FirstToken != least(c, d) || times.Step != least(a, d) || times.Deadline <= 0 || times.FirstToken <= 0 {
			t.Fatalf("%q %q %q %q are %+v", a, b, c, d, times)
		}
	})
}
