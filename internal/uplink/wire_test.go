package uplink

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
	"google.golang.org/protobuf/proto"
)

func fullDirective() *Directive {
	return &Directive{
		Index: 9, SpecVersion: 4, Spec: []byte("regions: []"), PlanEpoch: 3,
		Drains:      []ActiveDrain{{Path: "us/a", Until: time.Unix(0, 12345), Reason: "upgrade"}, {Path: "eu", Start: time.Unix(0, 6789), Over: time.Minute}},
		TicketKeys:  [][]byte{bytes.Repeat([]byte{7}, 32)},
		StageNumber: 41, IsStaged: true,
		Grant: &QuotaGrant{
			Term: 3, Number: 9, Boot: 4, Mark: 5,
			Leases: []QuotaLease{{Tenant: "acme", RequestsMilli: 1500, TokensMilli: 7, Concurrency: 2, Day: 20_000, DayTokens: 9, DayMicros: 8}},
		},
		Peers: []PeerRegion{
			{
				Region: "eu", Gateways: []PeerGateway{{"g1", "h:1"}}, Age: time.Second, RTT: 80 * time.Millisecond, RTTSamples: 12,
				Summary: &capacity.Summary{Path: capacity.Path{Region: "eu"}, Models: []*capacity.ModelCapacity{{Name: "m", Ready: 1, Total: 2}}},
			},
			{Region: "ap"},
		},
	}
}

func TestDirectiveRoundTrip(t *testing.T) {
	want := fullDirective()
	b, left, err := encodeDirective(17, 0, want)
	if err != nil || left != (omittedCounts{}) {
		t.Fatal(left, err)
	}
	order, _, got, err := decodeDirective(b)
	if err != nil || order != 17 || !reflect.DeepEqual(got, want) {
		t.Fatalf("%d %v\ngot  %+v\nwant %+v", order, err, got, want)
	}
}

func TestMalformedDirectiveIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Directive){
		"drains":      func(d *Directive) { d.Drains = make([]ActiveDrain, maxDrains+1) },
		"drain path":  func(d *Directive) { d.Drains[0].Path = "" },
		"reason":      func(d *Directive) { d.Drains[0].Reason = strings.Repeat("x", maxTextBytes+1) },
		"keys":        func(d *Directive) { d.TicketKeys = make([][]byte, maxTicketKeys+1) },
		"empty key":   func(d *Directive) { d.TicketKeys = [][]byte{{}} },
		"whole limit": func(d *Directive) { d.Spec = make([]byte, maxDirectiveBytes) },
	} {
		d := fullDirective()
		spoil(d)
		if _, _, err := encodeDirective(1, 0, d); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
	if _, _, _, err := decodeDirective(make([]byte, maxDirectiveBytes+1)); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

func TestVersionNegotiation(t *testing.T) {
	for _, c := range []struct {
		theirs, theirMin uint32
		want             uint32
		ok               bool
	}{{1, 1, 1, true}, {2, 1, 2, true}, {9, 1, 2, true}, {9, 2, 2, true}, {9, 3, 0, false}, {0, 0, 0, false}} {
		got, err := agreeVersion(c.theirs, c.theirMin)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%+v: %d %v", c, got, err)
		}
	}
}

func TestControlFrameLimits(t *testing.T) {
	var buf bytes.Buffer
	if err := writeFrame(&buf, newHello(pathL2, 3, "e")); err != nil {
		t.Fatal(err)
	}
	var h uplinkpb.Hello
	if err := readFrame(&buf, &h); err != nil || h.Instance != "l2" {
		t.Fatal(&h, err)
	}
	if err := readFrame(strings.NewReader("\xff\xff\xff\xff"), &h); !isMalformed(err) {
		t.Error(err)
	}
	if err := writeFrame(&buf, &uplinkpb.Hello{Endpoint: strings.Repeat("x", maxHelloBytes)}); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

func FuzzHello(f *testing.F) {
	var buf bytes.Buffer
	_ = writeFrame(&buf, newHello(pathL2, 3, "e"))
	f.Add(buf.Bytes())
	id := localID("a", "l2")
	f.Fuzz(func(t *testing.T, b []byte) {
		var h uplinkpb.Hello
		if readFrame(bytes.NewReader(b), &h) != nil {
			return
		}
		if p, err := checkHello(&h, id); err == nil && (p != pathL2 || h.Zone != "a") {
			t.Fatalf("%+v passes for %s", &h, id)
		}
		_, _ = agreeVersion(h.Version, h.MinVersion)
	})
}

func FuzzWelcome(f *testing.F) {
	var buf bytes.Buffer
	_ = writeFrame(&buf, &uplinkpb.Welcome{Version: 1, HeldBoot: 5})
	f.Add(buf.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		var w uplinkpb.Welcome
		if err := readFrame(bytes.NewReader(b), &w); err == nil && proto.Size(&w) > maxHelloBytes {
			t.Fatal("over the limit")
		}
	})
}

func FuzzDirective(f *testing.F) {
	b, _, err := encodeDirective(1, 0, fullDirective())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		order, specOf, d, err := decodeDirective(b)
		if err != nil {
			return
		}
		if _, _, err := encodeDirective(order, specOf, d); err != nil {
			t.Fatalf("decoded but cannot be encoded: %v", err)
		}
	})
}

func FuzzInbox(f *testing.F) {
	s := timestampedModels(3)(time.Unix(1, 0))
	s.Path, s.Boot, s.Seq = pathL2, 1, 1
	d := capacity.DiffSummaries(&capacity.Summary{}, &s)
	delta, err := capacity.EncodeDelta(&d)
	if err != nil {
		f.Fatal(err)
	}
	snap, err := capacity.EncodeSummary(&s)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(snap, delta)
	f.Fuzz(func(t *testing.T, snap, delta []byte) {
		in := summaryInbox{path: pathL2, boot: 1, bootLimit: 1 << 63}
		_, _ = in.acceptSnapshot(snap)
		_, _ = in.acceptDelta(delta)
		if in.newest != nil && (in.newest.Path != pathL2 || in.newest.Boot < 1) {
			t.Fatalf("holds %+v", in.newest)
		}
	})
}

func FuzzDecodeQuery(f *testing.F) {
	b, _ := proto.Marshal(&uplinkpb.Ask{Kind: "status", TimeoutNano: 5, Payload: []byte("x")})
	f.Add(append([]byte{kindQuery}, b...))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, body, err := readMessage(bytes.NewReader(b), MaxQueryBytes+queryOverheadBytes)
		if err != nil {
			return
		}
		if q, err := decodeQuery(body); err == nil && len(q.Payload) > MaxQueryBytes {
			t.Fatal("over the limit")
		}
		_, _ = decodeAnswer(body)
	})
}

func FuzzReadConfirmation(f *testing.F) {
	b, _ := proto.Marshal(&uplinkpb.Heard{Boot: 1, Seq: 5})
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var h uplinkpb.Heard
		if proto.Unmarshal(b, &h) != nil {
			return
		}
		o := summaryOutbox{unconfirmed: []uint64{1, 2, 3}}
		o.confirmUpTo(h.Seq)
		if len(o.unconfirmed) > 0 && o.unconfirmed[0] <= h.Seq {
			t.Fatal("still waits for what was heard")
		}
	})
}

func TestPathOf(t *testing.T) {
	for _, c := range []struct {
		id   identity.ID
		want string
	}{{gatewayID("g1"), "us/g1"}, {localID("a", "l"), "us/a/l"}, {identity.ID{Role: identity.RoleOperator, Name: "o"}, ""}} {
		p, err := PathOf(c.id)
		if p.String() != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %q %v", c.id, p, err)
		}
	}
}

// TestConfirmationIsHeardMessage: what a parent appends is the encoding of the message that children decode.
func TestConfirmationIsHeardMessage(t *testing.T) {
	for _, want := range []*uplinkpb.Heard{
		{}, {Boot: 1}, {Seq: 1 << 63, GapMillis: 222}, {Boot: 1<<64 - 1, Seq: 1<<64 - 1, GapMillis: 500, Resync: true}, {Resync: true},
	} {
		b := appendConfirmation(nil, want.Boot, want.Seq, time.Duration(want.GapMillis)*time.Millisecond, want.Resync)
		var got uplinkpb.Heard
		if err := proto.Unmarshal(b[1:], &got); err != nil || b[0] != kindConfirmation || !proto.Equal(&got, want) || len(b) > maxConfirmationBytes {
			t.Errorf("%v is %x, decoded %v, %v", want, b, &got, err)
		}
	}
}
