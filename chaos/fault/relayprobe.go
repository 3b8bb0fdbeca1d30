package fault

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// Constants of a probe of links.
const (
	// probedLinks bounds the links that one probe measures; the state of all is compared.
	probedLinks = 12
	// probeMessages is how many messages go through each link, probeGap apart.
	probeMessages = 20
	probeGap      = 5 * time.Millisecond
	// probeSlack is how much later than the delays answers may be: a busy machine is late.
	probeSlack = 150 * time.Millisecond
	probeBytes = 16
)

// linkMeasurement is what a probe saw of a link.
type linkMeasurement struct {
	sent, answered, copies int
	low, high              time.Duration // round trip
	reset                  bool
}

func (m linkMeasurement) String() string {
	switch {
	case m.reset:
		return "connection reset"
	case m.answered == 0:
		return fmt.Sprintf("0 of %d answered", m.sent)
	}
	s := fmt.Sprintf("%d of %d answered in %s to %s", m.answered, m.sent, m.low.Round(100*time.Microsecond), m.high.Round(100*time.Microsecond))
	if m.copies > m.answered {
		s += fmt.Sprintf(", %d twice", m.copies-m.answered)
	}
	return s
}

// compareEffects says what of a measurement contradicts the effects, or "".
func (l *relayLink) compareEffects(m linkMeasurement, forward, back effect) string {
	e := addEffect(forward, back)
	delay := l.RTT + forward.delay + back.delay
	most := delay + forward.jitter + back.jitter + probeSlack
	switch {
	case !l.Datagrams && e.reset:
		if !m.reset {
			return "a reset was expected"
		}
		return ""
	case e.cut || e.discard || !l.Datagrams && e.halfOpen:
		if m.answered > 0 {
			return "no answer was expected"
		}
		return ""
	case e.rate > 0 || e.loss > 0 || e.reorder > 0: // a few messages show neither a share nor a rate
		return ""
	case m.reset:
		return "no reset was expected"
	case m.answered < m.sent:
		return "all answers were expected"
	case m.low < delay-time.Millisecond:
		return fmt.Sprintf("a round trip of %s was expected", delay)
	case m.low > most:
		return fmt.Sprintf("a round trip of at most %s was expected", most)
	}
	return ""
}

// measure sends messages through a link.
func (l *relayLink) measure(ctx context.Context, forward, back effect) (linkMeasurement, error) {
	e := addEffect(forward, back)
	wait := l.RTT + forward.delay + back.delay + forward.jitter + back.jitter + 2*e.stall + e.reorderDelay + probeSlack
	if !e.cut && !e.discard && !e.reset && !e.halfOpen {
		wait += time.Second // the last answers of a busy machine; a link that answers ends sooner
	}
	ctx, cancel := context.WithTimeout(ctx, wait+probeMessages*probeGap)
	defer cancel()
	if l.Datagrams {
		return l.measureDatagrams(ctx)
	}
	return l.measureStream(ctx, forward, back)
}

// exchange sends messages and counts the echoes until all are back or ctx is done.
func exchange(ctx context.Context, c net.Conn, read func([]byte) error) (m linkMeasurement) {
	start := time.Now()
	m.sent = probeMessages
	seen := map[uint64]bool{}
	stop := context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Now()) })
	defer stop()
	go func() {
		for i := range probeMessages {
			var b [probeBytes]byte
			binary.BigEndian.PutUint64(b[:], uint64(i))
			binary.BigEndian.PutUint64(b[8:], uint64(time.Since(start)))
			if _, err := c.Write(b[:]); err != nil {
				return
			}
			select {
			case <-time.After(probeGap):
			case <-ctx.Done():
				return
			}
		}
	}()
	b := make([]byte, probeBytes)
	for len(seen) < probeMessages {
		if err := read(b); err != nil {
			m.reset = !errors.Is(err, io.EOF) && ctx.Err() == nil
			break
		}
		rtt := time.Since(start) - time.Duration(binary.BigEndian.Uint64(b[8:]))
		m.copies++
		if id := binary.BigEndian.Uint64(b); !seen[id] {
			seen[id] = true
			if m.answered == 0 || rtt < m.low {
				m.low = rtt
			}
			m.high = max(m.high, rtt)
			m.answered++
		}
	}
	return m
}

// measureStream carries a connection of its own through the link to an echo.
func (l *relayLink) measureStream(ctx context.Context, forward, back effect) (linkMeasurement, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return linkMeasurement{}, err
	}
	defer ln.Close()
	stop := make(chan struct{})
	defer close(stop)
	go func() { // the first connection is the dialer's, carried through the link; the second is the echo
		near, err := ln.Accept()
		if err != nil {
			return
		}
		l.carryConn(near.(*net.TCPConn), func() (*net.TCPConn, error) {
			far, echo, err := connectPair()
			if err == nil {
				go func() {
					defer echo.Close()
					io.Copy(echo, echo)
				}()
			}
			return far, err
		}, stop)
	}()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", ln.Addr().String())
	if err != nil {
		return linkMeasurement{sent: 1, reset: true}, nil // the carried connection was reset while it was opened
	}
	defer c.Close()
	if !forward.cut && !back.cut && !forward.reset && !back.reset && !forward.discard && !back.discard && !forward.halfOpen && !back.halfOpen {
		// The first message waits for the handshake.
		b := make([]byte, probeBytes)
		c.SetReadDeadline(time.Now().Add(2*(l.RTT+forward.delay+back.delay+forward.jitter+back.jitter+forward.stall+back.stall) + 2*time.Second))
		if _, err := c.Write(b); err != nil {
			return linkMeasurement{}, err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return linkMeasurement{sent: 1, reset: !errors.Is(err, io.EOF)}, nil
		}
		c.SetReadDeadline(time.Time{})
	}
	return exchange(ctx, c, func(b []byte) error {
		_, err := io.ReadFull(c, b)
		return err
	}), nil
}

// connectPair returns the two ends of a connection.
func connectPair() (a, b *net.TCPConn, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			accepted <- c
		}
		close(accepted)
	}()
	dialed, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	c, ok := <-accepted
	if !ok {
		return nil, nil, errors.Join(errors.New("no connection was accepted"), dialed.Close())
	}
	return dialed.(*net.TCPConn), c.(*net.TCPConn), nil
}

// measureDatagrams sends datagrams through the link to an echo.
func (l *relayLink) measureDatagrams(ctx context.Context) (linkMeasurement, error) {
	echo, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return linkMeasurement{}, err
	}
	go func() {
		b := make([]byte, 64)
		for {
			n, from, err := echo.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			echo.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	defer echo.Close()
	own := l.Link
	own.Listen = netip.MustParseAddrPort("127.0.0.1:0")
	own.Forward = echo.LocalAddr().(*net.UDPAddr).AddrPort()
	d, err := openDatagramLink(&relayLink{Link: own, forward: l.forward, back: l.back, lateness: l.lateness})
	if err != nil {
		return linkMeasurement{}, err
	}
	d.start()
	defer d.close()
	c, err := net.DialUDP("udp", nil, d.socket.LocalAddr().(*net.UDPAddr))
	if err != nil {
		return linkMeasurement{}, err
	}
	defer c.Close()
	return exchange(ctx, c, func(b []byte) error {
		_, err := c.Read(b)
		return err
	}), nil
}
