package pick

import "math/bits"

// table maps hashes of blocks to places, which are never negative. It is a Go map's third in time: its keys are hashes
// already, nobody walks it while it changes, and what is looked for lies in one cache line nearly always. Open addressing,
// with the gap closed when something is taken out (Knuth, vol. 3, 6.4, algorithm R).
type table struct {
	slots []slotOf
	n     int
	shift uint8
}

// slotOf holds a key and its place plus one; 0 is an empty slot.
type slotOf struct {
	key   uint64
	place int32
}

// spreadBy is 2^64 over the golden ratio: keys that differ little come to lie apart.
const spreadBy = 0x9e3779b97f4a7c15

func (t *table) len() int { return t.n }

func (t *table) home(key uint64) int { return int(key * spreadBy >> t.shift) }

// find is the slot that holds a key, or the empty one where it would be.
func (t *table) find(key uint64) int {
	i, mask := t.home(key), len(t.slots)-1
	for t.slots[i].place != 0 && t.slots[i].key != key {
		i = (i + 1) & mask
	}
	return i
}

func (t *table) get(key uint64) (place int32, ok bool) {
	if t.n == 0 {
		return 0, false
	}
	s := &t.slots[t.find(key)]
	return s.place - 1, s.place != 0
}

func (t *table) put(key uint64, place int32) {
	if 4*(t.n+1) > 3*len(t.slots) {
		t.resize(max(8, 2*len(t.slots)))
	}
	s := &t.slots[t.find(key)]
	if s.place == 0 {
		t.n++
	}
	*s = slotOf{key, place + 1}
}

// enter returns a key's place; one that is not there is put at fresh.
func (t *table) enter(key uint64, fresh int32) (place int32, isNew bool) {
	if 4*(t.n+1) > 3*len(t.slots) {
		if place, ok := t.get(key); ok {
			return place, false
		}
		t.resize(max(8, 2*len(t.slots)))
	}
	s := &t.slots[t.find(key)]
	if s.place != 0 {
		return s.place - 1, false
	}
	t.n++
	*s = slotOf{key, fresh + 1}
	return fresh, true
}

func (t *table) drop(key uint64) {
	if t.n == 0 {
		return
	}
	i, mask := t.find(key), len(t.slots)-1
	if t.slots[i].place == 0 {
		return
	}
	t.n--
	for k := (i + 1) & mask; t.slots[k].place != 0; k = (k + 1) & mask {
		if home := t.home(t.slots[k].key); (k-home)&mask >= (k-i)&mask {
			t.slots[i], i = t.slots[k], k
		}
	}
	t.slots[i] = slotOf{}
	if len(t.slots) > 64 && 8*t.n < len(t.slots) {
		t.resize(len(t.slots) / 2)
	}
}

// resize lays everything out anew in so many slots, a power of two.
func (t *table) resize(slots int) {
	old := t.slots
	t.slots, t.shift = make([]slotOf, slots), uint8(64-bits.TrailingZeros(uint(slots)))
	for i := range old {
		if old[i].place != 0 {
			t.slots[t.find(old[i].key)] = old[i]
		}
	}
}

// tableFor has room for so many keys.
func tableFor(keys int) table {
	t := table{}
	slots := 8
	for 3*slots < 4*keys {
		slots *= 2
	}
	t.resize(slots)
	return t
}
