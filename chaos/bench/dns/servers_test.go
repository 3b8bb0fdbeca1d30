package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestServersHaveTheirFiles checks that the archive contains the files of each server, and that their templates can be
// filled in.
func TestServersHaveTheirFiles(t *testing.T) {
	needed := map[string][]string{
		"spillway":     {"spillway.yaml", "spec.yaml"},
		"gdnsd":        {"gdnsd/config", "gdnsd/zones/geo.test"},
		"knot":         {"knot.conf", "geo.conf", "geo.test.zone"},
		"coredns":      {"Corefile"},
		"coredns-file": {"Corefile", "us.zone", "eu.zone", "ap.zone"},
	}
	for _, s := range listServers("spillway") {
		if len(needed[s.label]) == 0 {
			t.Errorf("%s: no files are listed for it", s.label)
		}
		dir := t.TempDir()
		if err := s.renderFiles(dir, "geo.mmdb"); err != nil {
			t.Errorf("%s: %v", s.label, err)
		}
		for _, name := range needed[s.label] {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Errorf("%s: %v", s.label, err)
			}
		}
	}
}
