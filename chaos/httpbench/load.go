package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	apiKey  = "sk-bench-0123456789abcdef0123456789abcdef"
	bodyLen = 1024
)

// request is one for an answer in one piece, or with what the worker is to do for a stream.
func request(what string) []byte {
	head := `{"model":"` + model + `","max_tokens":64,`
	if what != "" {
		head += `"stream":true,"metadata":{` + order + what + `"},`
	}
	head += `"messages":[{"role":"system","content":"You are helpful."},{"role":"user","content":"`
	const tail, words = `"}]}`, "the quick brown fox jumps over the lazy dog and then "
	n := bodyLen - len(head) - len(tail)
	body := head + strings.Repeat(words, n/len(words)+1)[:n] + tail
	return []byte("POST /v1/chat/completions HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: openai-python/1.0\r\nAccept: application/json\r\nAuthorization: Bearer " +
		apiKey + "\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
}

// times counts durations in steps of a microsecond up to 200 ms.
type times struct{ count [200_001]atomic.Uint32 }

func (t *times) add(d time.Duration) {
	t.count[min(max(d.Microseconds(), 0), int64(len(t.count)-1))].Add(1)
}

func (t *times) clear() { clear(t.count[:]) }

// quantile is a duration that a share of all does not exceed.
func (t *times) quantile(share float64) time.Duration {
	var total, seen uint64
	for i := range t.count {
		total += uint64(t.count[i].Load())
	}
	for i := range t.count {
		if seen += uint64(t.count[i].Load()); float64(seen) > share*float64(total) {
			return time.Duration(i) * time.Microsecond
		}
	}
	return 0
}

// load is what one turn puts on a server, and what came of it.
type load struct {
	on        *system
	done, bad atomic.Int64 // units of work: answers or events; and answers that were refused or broke off
	took      times        // of answers, or of events from the worker to here
	first     times        // from a request to the first event of its answer
	opened    atomic.Int64 // streams that have had an event

	mu    sync.Mutex
	why   map[string]int
	conns map[net.Conn]struct{}
	over  bool
	wg    sync.WaitGroup
}

func newLoad(on *system) *load {
	return &load{on: on, why: map[string]int{}, conns: map[net.Conn]struct{}{}}
}

// fail counts an answer that was none, unless the turn is over.
func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.bad.Add(1)
		if len(l.why) < 8 {
			l.why[err.Error()]++
		}
	}
}

func (l *load) dial() (net.Conn, error) {
	c, err := l.on.connect()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	l.conns[c] = struct{}{}
	return c, nil
}

// hangUp closes one connection.
func (l *load) hangUp(c net.Conn) {
	_ = c.Close() // nothing is lost with it
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
}

// stop ends the turn and waits for everybody.
func (l *load) stop() {
	l.mu.Lock()
	l.over = true
	for c := range l.conns {
		_ = c.Close() // as above
	}
	l.mu.Unlock()
	l.wg.Wait()
}

// closed keeps a number of connections busy, each with one request after the other.
func (l *load) closed(conns int) {
	req := request("")
	for range conns {
		l.wg.Go(func() {
			for !l.ended() {
				if err := l.converse(req); err != nil {
					l.fail(err)
				}
			}
		})
	}
}

func (l *load) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over
}

// converse asks on one connection until something goes wrong.
func (l *load) converse(req []byte) error {
	c, err := l.dial()
	if err != nil {
		time.Sleep(10 * time.Millisecond)
		return err
	}
	defer l.hangUp(c)
	br := bufio.NewReaderSize(c, 4096)
	for {
		began := time.Now()
		if _, err := c.Write(req); err != nil {
			return err
		}
		if err := readAnswer(br); err != nil {
			return err
		}
		l.took.add(time.Since(began))
		l.done.Add(1)
	}
}

// readAnswer reads an answer in one piece.
func readAnswer(br *bufio.Reader) error {
	if err := readStatus(br); err != nil {
		return err
	}
	length, err := readHead(br)
	switch {
	case err != nil:
	case length == chunked:
		_, err = readChunks(br)
	default:
		_, err = br.Discard(int(length))
	}
	return err
}

func readStatus(br *bufio.Reader) error {
	line, err := br.ReadSlice('\n')
	if err != nil {
		return err
	}
	if len(line) < 12 || string(line[9:12]) != "200" {
		return fmt.Errorf("answered %q", bytes.TrimSpace(line))
	}
	return nil
}

// streams opens streams, at most 64 at a time, and follows them until the turn is over.
func (l *load) streams(n int, what string) {
	req := request(what)
	opening := make(chan struct{}, 64)
	l.wg.Go(func() {
		for range n {
			opening <- struct{}{}
			l.wg.Go(func() {
				began := sync.OnceFunc(func() { <-opening })
				defer began()
				c, err := l.dial()
				if err == nil {
					defer l.hangUp(c)
					err = l.follow(c, bufio.NewReaderSize(c, 2048), req, began)
				}
				l.fail(fmt.Errorf("a stream ended: %w", err))
			})
		}
	})
}

// follow asks for a stream and times its events until its end. A stream that ends as it should is no error.
func (l *load) follow(c net.Conn, br *bufio.Reader, req []byte, began func()) error {
	asked := time.Now()
	if _, err := c.Write(req); err != nil {
		return err
	}
	if err := readStatus(br); err != nil {
		return err
	}
	if _, err := readHead(br); err != nil {
		return err
	}
	var s scanner
	for {
		if _, err := br.Peek(1); err != nil {
			return err
		}
		b, _ := br.Peek(br.Buffered()) // they are there
		now := time.Now().UnixNano()
		for at := range s.scan(b) {
			if !s.begun {
				s.begun = true
				l.first.add(time.Since(asked))
				l.opened.Add(1)
				began()
			}
			l.took.add(time.Duration(now - at))
			l.done.Add(1)
		}
		if _, err := br.Discard(len(b)); err != nil {
			return err
		}
		if s.ended {
			return nil
		}
	}
}

// scanner finds the times of events and the end of a stream's last chunk, however it is cut.
type scanner struct {
	matched, digits int
	value           int64
	begun, ended    bool
	tail            [5]byte
}

func (s *scanner) scan(b []byte) func(yield func(int64) bool) {
	return func(yield func(int64) bool) {
		for _, ch := range b {
			copy(s.tail[:], s.tail[1:])
			s.tail[4] = ch
			if s.matched == len(stamp) {
				if ch >= '0' && ch <= '9' {
					s.value, s.digits = s.value*10+int64(ch-'0'), s.digits+1
					continue
				}
				if s.digits == 19 && !yield(s.value) {
					return
				}
				s.matched, s.digits, s.value = 0, 0, 0
			}
			switch ch {
			case stamp[s.matched]:
				s.matched++
			case stamp[0]:
				s.matched = 1
			default:
				s.matched = 0
			}
		}
		s.ended = string(s.tail[:]) == "0\r\n\r\n"
	}
}

// ramp is how long a rate takes to come up: connections between two tiers are made one by one, each for a handshake.
const ramp = 2 * time.Second

// rated begins short streams at random moments, so many a second, each on a connection that is free.
func (l *load) rated(perSecond float64, what string) {
	req := request(what)
	var mu sync.Mutex
	var free []net.Conn
	l.wg.Go(func() {
		began := time.Now()
		for next := began; !l.ended(); {
			now := perSecond * min(0.1+next.Sub(began).Seconds()/ramp.Seconds(), 1)
			next = next.Add(time.Duration(rand.ExpFloat64() / now * float64(time.Second)))
			for left := time.Until(next); left > 0; left = time.Until(next) {
				time.Sleep(left)
			}
			mu.Lock()
			var c net.Conn
			if n := len(free); n > 0 {
				c, free = free[n-1], free[:n-1]
			}
			mu.Unlock()
			l.wg.Go(func() {
				var err error
				if c == nil {
					if c, err = l.dial(); err != nil {
						l.fail(err)
						return
					}
				}
				if err = l.follow(c, bufio.NewReaderSize(c, 2048), req, func() {}); err != nil {
					l.hangUp(c)
					l.fail(err)
					return
				}
				mu.Lock()
				free = append(free, c)
				mu.Unlock()
			})
		}
	})
}

// reasons says why answers were bad.
func (l *load) reasons() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.why) == 0 {
		return nil
	}
	return errors.New(fmt.Sprint(l.why))
}
