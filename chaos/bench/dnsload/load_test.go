package dnsload

import (
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"
)

// startTestServer answers every query with 192.0.2.X, where X is the second octet of the client's subnet, and scope
// 8; queries whose third octet is 9 get no answer.
func startTestServer(t *testing.T) netip.AddrPort {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadBuffer(1 << 20)
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 1232)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			if out := makeReply(buf[:n]); out != nil {
				_, _ = c.WriteToUDPAddrPort(out, from)
			}
		}
	}()
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

func makeReply(q []byte) []byte {
	question := skipName(q, 12) + 4
	opt := slices.Clone(q[question:])
	client := opt[19:]
	if client[2] == 9 {
		return nil
	}
	opt[18] = 8
	out := append([]byte{q[0], q[1], 0x84, 0, 0, 1, 0, 1, 0, 0, 0, 1}, q[12:question]...)
	out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, client[1])
	return append(out, opt...)
}

func TestRunCountsAnswers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("load is generated on Linux only")
	}
	want := make([]byte, 1<<24)
	want[5<<16|7<<8|1], want[5<<16|8<<8|1], want[5<<16|6<<8|9] = 7, 3, 6
	for _, rate := range []float64{0, 2000} {
		l := QueryLoad{Server: startTestServer(t), Name: "a.test.", Subnets: []uint32{5<<16 | 7<<8 | 1, 5<<16 | 8<<8 | 1}, WantOctet: want, Rate: rate, Window: 16, Timeout: time.Minute}
		r, err := l.RunFor(t.Context(), 300*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if r.Answered == 0 || r.Lost != 0 || r.Malformed != 0 || r.Sent != r.Answered || r.Wrong < r.Answered/2-1 || r.Wrong > r.Answered/2+1 {
			t.Errorf("rate %v: %s", rate, &r)
		}
		if r.P50 <= 0 || r.P99 < r.P50 || r.MaxLatency < r.P99 {
			t.Errorf("latencies of %s", &r)
		}
	}
	l := QueryLoad{Server: startTestServer(t), Name: "a.test.", Subnets: []uint32{5<<16 | 7<<8 | 1, 5<<16 | 6<<8 | 9}, WantOctet: want, Rate: 200}
	r, err := l.RunFor(t.Context(), 200*time.Millisecond)
	if err != nil || r.Lost == 0 || r.Lost+r.Answered != r.Sent || r.Wrong != 0 {
		t.Errorf("every second one is never answered: %s, %v", &r, err)
	}
}

func TestCacheEntriesFollowScopes(t *testing.T) {
	n, err := CountCacheEntries(startTestServer(t), "a.test.", netip.MustParseAddr("3.0.0.0"), netip.MustParseAddr("9.255.255.255"))
	if err != nil || n != 7 {
		t.Errorf("%d entries, %v; want the 7 networks of 8 bits", n, err)
	}
}

func FuzzReadScope(f *testing.F) {
	f.Add(makeReply(MakeQuery("a.test.", 24)))
	f.Fuzz(func(_ *testing.T, b []byte) { ReadScope(b) })
}
