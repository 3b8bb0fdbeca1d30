package main

import (
	"io/fs"
	"os/exec"
	"testing"
)

// TestServersHaveTheirFiles checks that the repository contains the files of each server. A zone file whose name
// matches a pattern of .gitignore is missing from a clone, and the server then starts without its zone.
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
		for _, name := range needed[s.label] {
			path := "files/" + s.label + "/" + name
			if _, err := fs.Stat(configFiles, path); err != nil {
				t.Errorf("%s: %v", s.label, err)
			}
			if err := exec.Command("git", "check-ignore", "--quiet", "--no-index", path).Run(); err == nil {
				t.Errorf("%s matches a pattern of .gitignore: a clone would lack it", path)
			}
		}
	}
}
