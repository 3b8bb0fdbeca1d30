package xdp

import (
	"encoding/binary"
	"net/netip"
)

// Sizes of an image, in bytes. The program masks every offset with imageMask, so that no offset in it can lead outside.
const (
	imageBytes = 8 << 20 // three services with a million networks each
	imageMask  = imageBytes - 1
	imageSlack = 4096 // what may be read from the last offset on

	maxAddrs     = 16 // local addresses
	nameSlots    = 128
	nameProbes   = 4
	maxNameLen   = 64 // in wire format
	nameSlotSize = 96
	namesAt      = 4 * maxAddrs
	tablesAt     = namesAt + nameSlots*nameSlotSize

	answerSlotSize = 256
	answerHeadLen  = 4
	maxAnswerLen   = 240
)

// Fields of a name's slot after its key.
const (
	slotNameLen = maxNameLen + 4*iota
	slotClass
	slotFirst
	slotNodes
	slotRuns
	slotAnswers
	slotValues
)

// Name is a name that the program answers.
type Name struct {
	// Wire is the name in wire format and lower case.
	Wire []byte
	// Class is its class in rate limiting.
	Class uint32
	// Networks encodes the table of client networks, see geo.ScopeMap.EncodeIPv4.
	Networks func(limit int) (first, nodes, runs []byte)
	// Answers are the answer sections of A and AAAA by value of the table, the first being that of value 1. An empty one
	// passes queries to the socket.
	Answers [][2]Answer
}

// Answer is an answer section.
type Answer struct {
	Count   uint16
	Records []byte
}

// BuildImage encodes what the program answers: queries to local addresses for names. Names that do not fit are left out,
// and their queries go to the socket; it returns how many.
func BuildImage(local []netip.Addr, names []Name) (image []byte, leftOut int) {
	b := make([]byte, tablesAt, imageBytes+imageSlack)
	for i, a := range local[:min(len(local), maxAddrs)] {
		v4 := a.As4()
		copy(b[4*i:], v4[:])
	}
	for i := range names {
		var ok bool
		if b, ok = appendName(b, &names[i]); !ok {
			leftOut++
		}
	}
	return b[:cap(b)], leftOut
}

// appendName returns false, and an unchanged image, if the name does not fit.
func appendName(b []byte, n *Name) ([]byte, bool) {
	slot := findNameSlot(b, n.Wire)
	if slot == nil {
		return b, false
	}
	first, nodes, runs := n.Networks(imageBytes - len(b))
	size := len(first) + len(nodes) + len(runs) + (len(n.Answers)+1)*2*answerSlotSize
	if first == nil || len(b)+size > imageBytes {
		return b, false
	}
	copy(slot, n.Wire)
	put := func(field int, v uint32) { binary.LittleEndian.PutUint32(slot[field:], v) }
	put(slotNameLen, uint32(len(n.Wire)))
	put(slotClass, n.Class)
	put(slotValues, uint32(len(n.Answers)))
	for _, part := range []struct {
		field int
		bytes []byte
	}{{slotFirst, first}, {slotNodes, nodes}, {slotRuns, runs}} {
		put(part.field, uint32(len(b)))
		b = append(b, part.bytes...)
	}
	put(slotAnswers, uint32(len(b)))
	b = append(b, make([]byte, 2*answerSlotSize)...) // value 0
	for i := range n.Answers {
		for _, a := range n.Answers[i] {
			var s [answerSlotSize]byte
			if len(a.Records) <= maxAnswerLen {
				binary.LittleEndian.PutUint16(s[:], uint16(len(a.Records)))
				binary.BigEndian.PutUint16(s[2:], a.Count)
				copy(s[answerHeadLen:], a.Records)
			}
			b = append(b, s[:]...)
		}
	}
	return b, true
}

// findNameSlot returns a free slot for a name, or nil.
func findNameSlot(b, wire []byte) []byte {
	if len(wire) < 2 || len(wire) > maxNameLen {
		return nil
	}
	h := hashName(wire)
	for i := range uint64(nameProbes) {
		at := namesAt + int((h+i)%nameSlots)*nameSlotSize
		if s := b[at : at+nameSlotSize]; binary.LittleEndian.Uint32(s[slotNameLen:]) == 0 {
			return s
		}
	}
	return nil
}

// Constants of hashName: those of splitmix64.
const (
	hashSeed  = 0x1e3779b97f4a7c15
	hashPrime = 0x3f58476d1ce4e5b9
)

// hashName hashes the words of a name up to the one with the final zero, like the program.
func hashName(wire []byte) uint64 {
	h := uint64(hashSeed)
	for at := 0; at < len(wire); at += 8 {
		var w [8]byte
		copy(w[:], wire[at:])
		h = (h ^ binary.LittleEndian.Uint64(w[:])) * hashPrime
		h ^= h >> 32
	}
	return h
}
