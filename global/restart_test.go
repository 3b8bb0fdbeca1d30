package global

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// TestARestartedNodeHasAViewBeforeQueries: the first View is made from the backup as the node starts, before a query can be
// read from the socket.
func TestARestartedNodeHasAViewBeforeQueries(t *testing.T) {
	p := newPlanet(t)
	dir := t.TempDir()
	if err := newBackup(dir, p.nodes[0].log).write(&consensus.State{Index: 9, SpecVersion: 3, Spec: []byte(specText())}); err != nil {
		t.Fatal(err)
	}
	s := p.newNodeIn("g9", "127.0.0.1:0", dir, "")
	if err := s.node.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.stopParts(t.Context())
	s.newKeeper(time.Now())
	if v := s.view.Load(); v == nil || v.version != 3 || v.from != savedState {
		t.Fatalf("the first view is %+v", v)
	}
}

// TestMeasurementsOfAnotherRegionCountAtOnce: a node that has just started learns measured round trips with the first
// statement that brings some, and not when it next looks at them.
func TestMeasurementsOfAnotherRegionCountAtOnce(t *testing.T) {
	f := stillView(t).frame
	k := &keeper{s: &Server{cfg: Config{MeasuredFor: geo.MeasuredFor}}, frame: f}
	book := capacity.NewBook(capacity.Thresholds{})
	now := time.Now()
	look := func(after time.Duration) { k.learn(book.View(now.Add(after)), now.Add(after)) }
	look(0)
	if len(k.near.cells) != 0 {
		t.Fatal("something is measured")
	}
	s := measuredAt(300*time.Millisecond, 64, 3)
	s.Path, s.Boot, s.Seq = capacity.Path{Region: "frankfurt", Instance: "gw"}, 1, 1
	book.Put(s, now)
	look(10 * time.Millisecond)
	if len(k.near.cells) != 1 {
		t.Error("the first measurements wait")
	}
	made := k.near.made
	look(20 * time.Millisecond)
	if k.near.made != made {
		t.Error("everything is blended anew without news")
	}
}
