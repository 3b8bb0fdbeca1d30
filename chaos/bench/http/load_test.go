//go:build !windows

package main

import (
	"bufio"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestScannerFindsEveryEvent: with any fragmentation of the stream.
func TestScannerFindsEveryEvent(t *testing.T) {
	text := streamHead + `78` + "\r\n" + eventHead + "1234567890123456789" + eventTail + "\r\n" + eventHead + "2345678901234567890" + eventTail + "\r\n" + string(streamEnd)
	for size := 1; size < len(text); size++ {
		var s eventScanner
		var got []int64
		for piece := range slices.Chunk([]byte(text), size) {
			got = slices.AppendSeq(got, s.scanEvents(piece))
		}
		if want := []int64{1234567890123456789, 2345678901234567890}; !slices.Equal(got, want) || !s.ended {
			t.Fatalf("pieces of %d: got %v (ended: %v), want %v", size, got, s.ended, want)
		}
	}
}

// TestLoadGeneratorAgainstWorker: the worker serves what the clients request, with a direct connection.
func TestLoadGeneratorAgainstWorker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { _ = serveWorker(l) }() // it ends with the listener
	ld := newBenchLoad(&benchSystem{fixedAddr: l.Addr().String()})
	defer ld.stopAll()
	c, err := ld.dialSystem()
	if err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(c)
	if err := ld.followStream(c, br, makeRequest("n=3 gap=1000"), func() {}); err != nil {
		t.Fatal(err)
	}
	if ld.done.Load() != 3 || ld.opened.Load() != 1 {
		t.Errorf("%d events of %d streams, want 3 of 1", ld.done.Load(), ld.opened.Load())
	}
	if _, err := c.Write(makeRequest("")); err != nil {
		t.Fatal(err)
	}
	if err := readAnswer(br); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte(strings.Replace(string(makeRequest("")), "/v1/", "/health?", 1))); err != nil {
		t.Fatal(err)
	}
	if err := readAnswer(br); err != nil {
		t.Fatal(err)
	}
	if q := ld.durations.quantileOf(0.5); q < 0 || q > time.Second {
		t.Errorf("median %v", q)
	}
}
