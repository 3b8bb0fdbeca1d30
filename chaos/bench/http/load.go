//go:build !windows

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
	apiKey           = "sk-bench-0123456789abcdef0123456789abcdef"
	requestBodyBytes = 1024
)

// makeRequest makes a request for an unstreamed answer or, with what, for a stream.
func makeRequest(what string) []byte {
	head := `{"model":"` + modelName + `","max_tokens":64,`
	if what != "" {
		head += `"stream":true,"metadata":{` + orderMark + what + `"},`
	}
	head += `"messages":[{"role":"system","content":"You are helpful."},{"role":"user","content":"`
	const tail, words = `"}]}`, "the quick brown fox jumps over the lazy dog and then "
	n := requestBodyBytes - len(head) - len(tail)
	body := head + strings.Repeat(words, n/len(words)+1)[:n] + tail
	return []byte("POST /v1/chat/completions HTTP/1.1\r\nHost: bench.test\r\nUser-Agent: openai-python/1.0\r\nAccept: application/json\r\nAuthorization: Bearer " +
		apiKey + "\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
}

// benchLoad is the load of one turn on a server, and its results.
type benchLoad struct {
	system       *benchSystem
	done, failed atomic.Int64   // units of work: answers or events; and answers that were refused or cut
	durations    durationCounts // of answers, or of events from the worker to the client
	firstEvent   durationCounts // from a request to the first event of its answer
	opened       atomic.Int64   // streams that have had an event

	mu          sync.Mutex
	errorCounts map[string]int
	conns       map[net.Conn]struct{}
	stopped     bool
	wg          sync.WaitGroup
}

func newBenchLoad(on *benchSystem) *benchLoad {
	return &benchLoad{system: on, errorCounts: map[string]int{}, conns: map[net.Conn]struct{}{}}
}

// countFailure counts a failed answer, unless the turn is over.
func (l *benchLoad) countFailure(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopped {
		l.failed.Add(1)
		if len(l.errorCounts) < 8 {
			l.errorCounts[err.Error()]++
		}
	}
}

func (l *benchLoad) dialSystem() (net.Conn, error) {
	c, err := l.system.dialClient()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	l.conns[c] = struct{}{}
	return c, nil
}

// closeConn closes one connection.
func (l *benchLoad) closeConn(c net.Conn) {
	_ = c.Close() // its state is not needed
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
}

// stopAll ends the turn and waits for all goroutines.
func (l *benchLoad) stopAll() {
	l.mu.Lock()
	l.stopped = true
	for c := range l.conns {
		_ = c.Close() // as above
	}
	l.mu.Unlock()
	l.wg.Wait()
}

// startClosedLoop keeps a number of connections busy, each with one request after the other.
func (l *benchLoad) startClosedLoop(conns int) {
	req := makeRequest("")
	for range conns {
		l.wg.Go(func() {
			for !l.isStopped() {
				if err := l.sendRequests(req); err != nil {
					l.countFailure(err)
				}
			}
		})
	}
}

// startPaced sends requests at a rate over a number of connections, each in even steps. A request that the answer before it
// delays counts from when it was due.
func (l *benchLoad) startPaced(conns int, perSecond float64) {
	req := makeRequest("")
	step := time.Duration(float64(conns) / perSecond * float64(time.Second))
	began := time.Now()
	for i := range conns {
		l.wg.Go(func() {
			due := began.Add(step * time.Duration(i) / time.Duration(conns))
			for !l.isStopped() {
				if err := l.sendPaced(req, &due, step); err != nil {
					l.countFailure(err)
				}
			}
		})
	}
}

// sendPaced sends requests on one connection, one for each step, until one fails.
func (l *benchLoad) sendPaced(req []byte, due *time.Time, step time.Duration) error {
	c, err := l.dialSystem()
	if err != nil {
		time.Sleep(10 * time.Millisecond)
		return err
	}
	defer l.closeConn(c)
	br := bufio.NewReaderSize(c, 4096)
	for {
		from := *due
		if wait := time.Until(*due); wait > 0 {
			time.Sleep(wait)
			from = time.Now() // the timer's lateness is not the server's
		}
		*due = due.Add(step)
		if _, err := c.Write(req); err != nil {
			return err
		}
		if err := readAnswer(br); err != nil {
			return err
		}
		l.durations.addDuration(time.Since(from))
		l.done.Add(1)
	}
}

func (l *benchLoad) isStopped() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopped
}

// sendRequests sends requests on one connection until one fails.
func (l *benchLoad) sendRequests(req []byte) error {
	c, err := l.dialSystem()
	if err != nil {
		time.Sleep(10 * time.Millisecond)
		return err
	}
	defer l.closeConn(c)
	br := bufio.NewReaderSize(c, 4096)
	for {
		began := time.Now()
		if _, err := c.Write(req); err != nil {
			return err
		}
		if err := readAnswer(br); err != nil {
			return err
		}
		l.durations.addDuration(time.Since(began))
		l.done.Add(1)
	}
}

// readAnswer reads an unstreamed answer.
func readAnswer(br *bufio.Reader) error {
	if err := readStatus(br); err != nil {
		return err
	}
	length, err := readHead(br)
	switch {
	case err != nil:
	case length == chunkedLength:
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

// startStreams opens streams, at most 64 at a time, and follows them until the turn is over.
func (l *benchLoad) startStreams(n int, what string) {
	req := makeRequest(what)
	opening := make(chan struct{}, 64)
	l.wg.Go(func() {
		for range n {
			opening <- struct{}{}
			l.wg.Go(func() {
				began := sync.OnceFunc(func() { <-opening })
				defer began()
				c, err := l.dialSystem()
				if err == nil {
					defer l.closeConn(c)
					err = l.followStream(c, bufio.NewReaderSize(c, 2048), req, began)
				}
				l.countFailure(fmt.Errorf("a stream ended: %w", err))
			})
		}
	})
}

// followStream requests a stream and times its events until its end. A stream that ends properly is no error.
func (l *benchLoad) followStream(c net.Conn, br *bufio.Reader, req []byte, began func()) error {
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
	var s eventScanner
	for {
		if _, err := br.Peek(1); err != nil {
			return err
		}
		b, _ := br.Peek(br.Buffered()) // they are buffered
		now := time.Now().UnixNano()
		for at := range s.scanEvents(b) {
			if !s.begun {
				s.begun = true
				l.firstEvent.addDuration(time.Since(asked))
				l.opened.Add(1)
				began()
			}
			l.durations.addDuration(time.Duration(now - at))
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

// rateRampTime is how long a rate takes to come up: connections between two tiers are opened one by one, each with a
// handshake.
const rateRampTime = 2 * time.Second

// startStreamsAtRate starts short streams at random times at the given rate, each on a free connection.
func (l *benchLoad) startStreamsAtRate(perSecond float64, what string) {
	req := makeRequest(what)
	var mu sync.Mutex
	var free []net.Conn
	l.wg.Go(func() {
		began := time.Now()
		for next := began; !l.isStopped(); {
			now := perSecond * min(0.1+next.Sub(began).Seconds()/rateRampTime.Seconds(), 1)
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
					if c, err = l.dialSystem(); err != nil {
						l.countFailure(err)
						return
					}
				}
				if err = l.followStream(c, bufio.NewReaderSize(c, 2048), req, func() {}); err != nil {
					l.closeConn(c)
					l.countFailure(err)
					return
				}
				mu.Lock()
				free = append(free, c)
				mu.Unlock()
			})
		}
	})
}

// failureReasons lists why answers failed.
func (l *benchLoad) failureReasons() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.errorCounts) == 0 {
		return nil
	}
	return errors.New(fmt.Sprint(l.errorCounts))
}

// openStreams opens streams and waits until all of them have had an event.
func (l *benchLoad) openStreams(n int, what string) error {
	l.startStreams(n, what)
	for end := time.Now().Add(streamOpenTimeout); l.opened.Load()+l.failed.Load() < int64(n); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) || contextOfRun.Err() != nil {
			return fmt.Errorf("%d of %d streams have begun, %d have failed: %v", l.opened.Load(), n, l.failed.Load(), l.failureReasons())
		}
	}
	return nil
}

// eventScanner finds the times of events and the end of a stream's last chunk, with any fragmentation.
type eventScanner struct {
	matched, digits int
	value           int64
	begun, ended    bool
	tail            [5]byte
}

func (s *eventScanner) scanEvents(b []byte) func(yield func(int64) bool) {
	return func(yield func(int64) bool) {
		for _, ch := range b {
			copy(s.tail[:], s.tail[1:])
			s.tail[4] = ch
			if s.matched == len(timestampMark) {
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
			case timestampMark[s.matched]:
				s.matched++
			case timestampMark[0]:
				s.matched = 1
			default:
				s.matched = 0
			}
		}
		s.ended = string(s.tail[:]) == "0\r\n\r\n"
	}
}
