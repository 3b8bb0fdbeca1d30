package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// TestDemoUsesTheLayoutOfItsFolder: a folder of `config init --fleet` starts with its own layout, unless a flag sets another.
func TestDemoUsesTheLayoutOfItsFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "fleet")
	small := fleet.Layout{Globals: 1, Regions: 1, Gateways: 1, Zones: 1, Locals: 1, Workers: 2, OneAddress: true, BasePort: 23000}
	if _, err := fleet.WriteFiles(dir, small); err != nil {
		t.Fatal(err)
	}
	asked := fleet.DefaultLayout()
	asked.Regions = 2
	for _, c := range []struct {
		name string
		args []string
		want fleet.Layout
	}{
		{"no flags", []string{"--dir", dir}, small},
		{"a flag", []string{"--dir", dir, "--regions", "2"}, asked},
		{"another folder", []string{"--dir", filepath.Join(dir, "other")}, fleet.DefaultLayout()},
		{"no folder", nil, fleet.DefaultLayout()},
	} {
		d := demoOptions{layout: fleet.DefaultLayout()}
		cmd := &cobra.Command{}
		d.addLayoutFlags(cmd)
		cmd.Flags().StringVar(&d.dir, "dir", "", "")
		if err := cmd.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		if err := d.useLayoutOfDir(cmd.Flags()); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if d.layout != c.want {
			t.Errorf("%s: the demo would run %+v, not %+v", c.name, d.layout, c.want)
		}
	}
}

func TestDemoOfOneRegionSuggestsADrainThatIsAccepted(t *testing.T) {
	for regions, want := range map[int]string{1: "drain worker virginia/a/w1 --for", 2: "drain region frankfurt --for"} {
		l := fleet.DefaultLayout()
		l.Regions = regions
		var out bytes.Buffer
		printDemoGuide(&out, &fleet.Files{Dir: t.TempDir(), Layout: l, Nodes: l.BuildNodes()}, false)
		if !strings.Contains(out.String(), want) {
			t.Errorf("with %d regions the guide lacks %q:\n%s", regions, want, out.String())
		}
	}
}
