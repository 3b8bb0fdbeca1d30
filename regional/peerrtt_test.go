package regional

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
)

func TestPeerRTTsAreReportedBesideCells(t *testing.T) {
	p, now := newPeerRTTs(), time.Now()
	for i := range 5 {
		p.add("ams", time.Duration(10+i*100*(i/4))*time.Millisecond, now.Add(time.Duration(i)*time.Second))
	}
	p.add("", time.Millisecond, now)
	p.add("iad", 0, now)
	p.add("iad", geo.MaxRTT+1, now)
	cells := []capacity.RTT{{Cell: "n40w075", Samples: 3, TotalMicros: 3}, {Cell: "s10e010", Samples: 3, TotalMicros: 3}}
	got := p.report(cells, now.Add(70*time.Second))
	want := capacity.RTT{Cell: "region/ams", Samples: 5, TotalMicros: 50_000, AgeSec: 60}
	if len(got) != 3 || got[1] != want || len(cells) != 2 {
		t.Fatalf("reported %+v, want %+v in the middle", got, want)
	}
	if r, ok := got[1].Region(); !ok || r != "ams" {
		t.Errorf("it leads to %q", r)
	}
	if _, ok := got[0].Region(); ok || geo.CellNamed(got[1].Cell) != geo.NoCell {
		t.Error("cells and regions are taken for each other")
	}
	s := capacity.Summary{Path: capacity.Path{Region: "fra", Instance: "g"}, RTTs: got}
	if _, err := capacity.Encode(&s); err != nil {
		t.Error(err)
	}
	if got := p.report(cells, now.Add(geo.MeasuredFor+time.Minute)); len(got) != 2 {
		t.Errorf("of six hours ago there is %+v", got)
	}
	for i := range 2 * maxPeerRTTs {
		p.add(fmt.Sprint(i), time.Millisecond, now)
	}
	if len(p.regions) > maxPeerRTTs {
		t.Errorf("%d regions are held", len(p.regions))
	}
}

func TestThePeerMeasuredLongestAgoIsLookedAt(t *testing.T) {
	g, now := &Gateway{peerRTTs: newPeerRTTs()}, time.Now()
	g.cfg.Region = "fra"
	if g.unmeasured(now) != "" {
		t.Error("before the first directive there is nobody")
	}
	d := &uplink.Directive{Peers: []uplink.Peer{
		{Region: "ams", Gateways: []uplink.PeerGateway{{Name: "a", Endpoint: "ams:1"}}},
		{Region: "iad", Gateways: []uplink.PeerGateway{{Name: "i", Endpoint: "iad:1"}}},
		{Region: "nrt"},
	}}
	g.state.Store(newState(d, &spec.Spec{Regions: []spec.Region{{Name: "fra"}, {Name: "ams"}, {Name: "iad"}, {Name: "nrt"}}}, "fra", now))
	g.peerRTTs.add("ams", time.Millisecond, now)
	if got := g.unmeasured(now); got != "iad:1" {
		t.Errorf("looks at %q, want the one never measured", got)
	}
	g.peerRTTs.add("iad", time.Millisecond, now.Add(time.Second))
	if got := g.unmeasured(now.Add(2 * time.Second)); got != "" {
		t.Errorf("looks at %q, which was measured just now", got)
	}
	if got := g.unmeasured(now.Add(time.Minute)); got != "ams:1" {
		t.Errorf("looks at %q, want the one measured longest ago", got)
	}
	if got := g.state.Load().regionOf("iad:1"); got != "iad" {
		t.Errorf("iad:1 is of %q", got)
	}
}
