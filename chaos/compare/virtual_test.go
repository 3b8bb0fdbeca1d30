package main

import (
	"flag"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/chaos/memnet"
)

var virtual = flag.String("virtual", "", "run the comparison in virtual time with these flags of the program, such as \"-seeds 3\"")

// TestVirtual is what `make compare` runs: the tables, in virtual time, so that a busy machine cannot spoil them.
func TestVirtual(t *testing.T) {
	if *virtual == "" {
		t.Skip("a comparison of minutes: make compare runs it")
	}
	o, err := parse(strings.Fields(*virtual))
	if err != nil {
		t.Fatal(err)
	}
	o.oneByOne = true
	o.bubble = func(run func() error) (err error) {
		synctest.Test(t, func(*testing.T) {
			o.net = &memnet.Net{}
			err = run()
		})
		return err
	}
	if err := compare(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// TestFloodInVirtualTime holds what users of a zone notice of another one's flood, over the real stack.
func TestFloodInVirtualTime(t *testing.T) {
	o, err := parse([]string{"-for", "60s"})
	if err != nil {
		t.Fatal(err)
	}
	each, err := capacity(o)
	if err != nil {
		t.Fatal(err)
	}
	var p99 [2]time.Duration
	for i := range p99 {
		begun := time.Now()
		synctest.Test(t, func(t *testing.T) {
			o.net = &memnet.Net{}
			light, _, err := beside(t.Context(), o, 1, each*fairWorkers, i == 1)
			if err != nil {
				t.Fatal(err)
			}
			p99[i] = quantile(first(light), 0.99)
			t.Logf("flooded %v: %d of %d answered, TTFT p50 %s p99 %s", i == 1, len(first(light)), len(light.outcomes), quantile(first(light), 0.5), p99[i])
		})
		t.Logf("took %s", time.Since(begun))
	}
	_ = os.Stdout
}
