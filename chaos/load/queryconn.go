package load

import (
	"net"
	"time"
)

// queryConn carries one query over UDP.
type queryConn struct {
	*net.UDPConn
	watch    *resolutionWatch
	queried  bool
	answered bool
}

// SetDeadline limits the resolver's own deadline.
func (c *queryConn) SetDeadline(t time.Time) error {
	return c.UDPConn.SetDeadline(earlierTime(t, c.watch.deadline))
}

func (c *queryConn) Write(b []byte) (int, error) {
	c.queried = true
	c.watch.counts.queries.Add(1)
	return c.UDPConn.Write(b)
}

func (c *queryConn) Read(b []byte) (int, error) {
	n, err := c.UDPConn.Read(b)
	if err == nil {
		c.noteResponse(b[:n])
	}
	return n, err
}

func (c *queryConn) noteResponse(msg []byte) {
	rcode, ttl, ok := readAnswer(msg)
	if !ok || c.answered {
		return
	}
	c.answered = true
	if rcode != 0 {
		c.watch.counts.failedQueries.Add(1)
		return
	}
	for ttl >= 0 {
		old := c.watch.minTTL.Load()
		if old != 0 && old <= ttl+1 || c.watch.minTTL.CompareAndSwap(old, ttl+1) {
			return
		}
	}
}

// Close counts a query without an answer.
func (c *queryConn) Close() error {
	if c.queried && !c.answered {
		c.watch.counts.failedQueries.Add(1)
	}
	return c.UDPConn.Close()
}

// streamConn carries a query over TCP, after an answer that was too large for UDP.
type streamConn struct {
	net.Conn
	watch  *resolutionWatch
	failed bool
}

// SetDeadline limits the resolver's own deadline.
func (c *streamConn) SetDeadline(t time.Time) error {
	return c.Conn.SetDeadline(earlierTime(t, c.watch.deadline))
}

func (c *streamConn) Write(b []byte) (int, error) {
	c.watch.counts.queries.Add(1)
	return c.Conn.Write(b)
}

func (c *streamConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !c.failed {
		c.failed = true
		c.watch.counts.failedQueries.Add(1)
	}
	return n, err
}

func earlierTime(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
