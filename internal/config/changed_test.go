package config_test

import (
	"slices"
	"testing"

	"github.com/spillway-lb/spillway/internal/config"
)

func TestChangedKeys(t *testing.T) {
	one := &config.Global{Name: "g1", Dir: "/a"}
	one.HTTP.Listen, one.Raft.Peers = "0.0.0.0:80", map[string]string{"g1": "a:1"}
	same := *one
	same.Raft.Peers = map[string]string{"g1": "a:1"}
	if got := config.ChangedKeys(one, &same); len(got) != 0 {
		t.Errorf("equal configs differ in %v", got)
	}
	two := same
	two.Dir, two.HTTP.Listen, two.HTTP.TrustedProxies = "/b", "0.0.0.0:81", []string{"10.0.0.0/8"}
	two.Raft.Peers = map[string]string{"g1": "a:1", "g2": "b:1"}
	got := config.ChangedKeys(one, &two)
	slices.Sort(got)
	if want := []string{"dir", "http.listen", "http.trusted_proxies", "raft.peers"}; !slices.Equal(got, want) {
		t.Errorf("changed %v, want %v", got, want)
	}
	if got := config.ChangedKeys(one, &config.Local{}); !slices.Equal(got, []string{"role"}) {
		t.Errorf("another role: %v", got)
	}
}
