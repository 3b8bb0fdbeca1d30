package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestFilesFollowSource renders every dashboard and compares it with its file.
func TestFilesFollowSource(t *testing.T) {
	all, err := readDashboards(".")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i := range all {
		d := &all[i]
		want, err := renderDashboard(d)
		if err != nil {
			t.Fatal(err)
		}
		have, err := os.ReadFile(d.Name + ".json")
		if err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s.json is not what dashboards.yaml describes: run `make docs` and commit the result (%v)", d.Name, err)
		}
		if seen[d.Name] || d.Title == "" || len(d.Panels) == 0 {
			t.Errorf("dashboard %q is a duplicate, or has no title or panels", d.Name)
		}
		seen[d.Name] = true
		for _, p := range d.Panels {
			for _, q := range p.Queries {
				if p.Title == "" || q.Expr == "" || q.Legend == "" {
					t.Errorf("%s: panel %q lacks a title, an expression or a legend", d.Name, p.Title)
				}
				for _, v := range d.Variables {
					if strings.Contains(q.Expr, "$"+v.Name) && !strings.Contains(q.Expr, v.Name+`=~"$`+v.Name+`"`) {
						t.Errorf("%s: %q: use =~ with $%s, which may stand for several values", d.Name, p.Title, v.Name)
					}
				}
			}
		}
	}
}

// TestPanelsDoNotOverlap checks the grid of every dashboard.
func TestPanelsDoNotOverlap(t *testing.T) {
	all, err := readDashboards(".")
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		text, err := renderDashboard(&all[i])
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Panels []struct {
				Title   string
				GridPos struct{ X, Y, W, H int }
			}
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		taken := map[[2]int]string{}
		for _, p := range d.Panels {
			g := p.GridPos
			if g.X+g.W > gridColumns {
				t.Errorf("%s: %q ends at column %d", all[i].Name, p.Title, g.X+g.W)
			}
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" {
						t.Fatalf("%s: %q covers %q", all[i].Name, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}
