package main

import (
	"bufio"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestScannerSeesEveryEvent whatever the pieces that a stream comes in.
func TestScannerSeesEveryEvent(t *testing.T) {
	text := streamHead + `78` + "\r\n" + eventHead + "1234567890123456789" + eventTail + "\r\n" + eventHead + "2345678901234567890" + eventTail + "\r\n" + string(streamEnd)
	for size := 1; size < len(text); size++ {
		var s scanner
		var got []int64
		for piece := range slices.Chunk([]byte(text), size) {
			got = slices.AppendSeq(got, s.scan(piece))
		}
		if want := []int64{1234567890123456789, 2345678901234567890}; !slices.Equal(got, want) || !s.ended {
			t.Fatalf("pieces of %d: got %v (ended: %v), want %v", size, got, s.ended, want)
		}
	}
}

// TestLoadAgainstTheWorker: what the clients ask for is what the worker does, with nothing between.
func TestLoadAgainstTheWorker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { _ = work(l) }() // it ends with the listener
	ld := newLoad(&system{fixed: l.Addr().String()})
	defer ld.stop()
	c, err := ld.dial()
	if err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(c)
	if err := ld.follow(c, br, request("n=3 gap=1000"), func() {}); err != nil {
		t.Fatal(err)
	}
	if ld.done.Load() != 3 || ld.opened.Load() != 1 {
		t.Errorf("%d events of %d streams, want 3 of 1", ld.done.Load(), ld.opened.Load())
	}
	if _, err := c.Write(request("")); err != nil {
		t.Fatal(err)
	}
	if err := readAnswer(br); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte(strings.Replace(string(request("")), "/v1/", "/health?", 1))); err != nil {
		t.Fatal(err)
	}
	if err := readAnswer(br); err != nil {
		t.Fatal(err)
	}
	if q := ld.took.quantile(0.5); q < 0 || q > time.Second {
		t.Errorf("median %v", q)
	}
}
