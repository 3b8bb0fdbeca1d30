package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestTargetsAreComparedWithBenchmarks(t *testing.T) {
	in := `goos: linux
BenchmarkChoosePercentiles-2   	   41052	     31093 ns/op	        20.0 p50-us	        130 p99-us	       0 B/op	       0 allocs/op
BenchmarkChoosePercentiles-2   	   41052	     31093 ns/op	        22.0 p50-us	        140 p99-us	       0 B/op	       0 allocs/op
BenchmarkChoosePercentiles-2   	   41052	     31093 ns/op	        90.0 p50-us	        150 p99-us	       0 B/op	       0 allocs/op
BenchmarkSubmitDispatchFinish-2   	  940264	      1162 ns/op	    860903 cycles/s	       0 B/op	       0 allocs/op
PASS
`
	var out bytes.Buffer
	if err := printTargets(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<= 25", "22      20      90        3     met", "140     130     150       3     MISSED", ">= 100000", "860903", "not measured"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
