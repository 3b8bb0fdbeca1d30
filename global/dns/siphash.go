package dns

import (
	"encoding/binary"
	"math/bits"
)

// sipHash is SipHash-2-4 (Aumasson and Bernstein 2012) with a 64-bit result.
func sipHash(key *CookieSecret, msg []byte) uint64 {
	k0, k1 := binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:])
	s := sipState{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	last := uint64(len(msg)) << 56
	for len(msg) >= 8 {
		s.absorbWord(binary.LittleEndian.Uint64(msg))
		msg = msg[8:]
	}
	for i, b := range msg {
		last |= uint64(b) << (8 * i)
	}
	s.absorbWord(last)
	s.v2 ^= 0xff
	for range 4 {
		s.sipRound()
	}
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3
}

type sipState struct{ v0, v1, v2, v3 uint64 }

func (s *sipState) absorbWord(m uint64) {
	s.v3 ^= m
	s.sipRound()
	s.sipRound()
	s.v0 ^= m
}

func (s *sipState) sipRound() {
	s.v0 += s.v1
	s.v1 = bits.RotateLeft64(s.v1, 13) ^ s.v0
	s.v0 = bits.RotateLeft64(s.v0, 32)
	s.v2 += s.v3
	s.v3 = bits.RotateLeft64(s.v3, 16) ^ s.v2
	s.v0 += s.v3
	s.v3 = bits.RotateLeft64(s.v3, 21) ^ s.v0
	s.v2 += s.v1
	s.v1 = bits.RotateLeft64(s.v1, 17) ^ s.v2
	s.v2 = bits.RotateLeft64(s.v2, 32)
}
