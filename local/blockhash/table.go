package blockhash

import "math/bits"

// Table maps hashes of blocks to non-negative slots. It takes a third of a Go map's time: its keys are hashes
// already, it is never iterated during changes, and a look-up nearly always reads one cache line. It uses open
// addressing, and removal closes the gap (Knuth, vol. 3, 6.4, algorithm R).
type Table struct {
	slots []tableSlot
	used  int
	shift uint8
}

// tableSlot holds a key and its value plus one; 0 is an empty slot.
type tableSlot struct {
	key          uint64
	valuePlusOne int32
}

// fibonacciMultiplier is 2^64 over the golden ratio. It spreads keys that differ little.
const fibonacciMultiplier = 0x9e3779b97f4a7c15

func (t *Table) Len() int { return t.used }

func (t *Table) homeSlot(key uint64) int { return int(key * fibonacciMultiplier >> t.shift) }

// findSlot returns the slot that holds a key, or the empty one where it would be.
func (t *Table) findSlot(key uint64) int {
	i, mask := t.homeSlot(key), len(t.slots)-1
	for t.slots[i].valuePlusOne != 0 && t.slots[i].key != key {
		i = (i + 1) & mask
	}
	return i
}

func (t *Table) Get(key uint64) (place int32, ok bool) {
	if t.used == 0 {
		return 0, false
	}
	s := &t.slots[t.findSlot(key)]
	return s.valuePlusOne - 1, s.valuePlusOne != 0
}

func (t *Table) putEntry(key uint64, place int32) {
	if 4*(t.used+1) > 3*len(t.slots) {
		t.resizeSlots(max(8, 2*len(t.slots)))
	}
	s := &t.slots[t.findSlot(key)]
	if s.valuePlusOne == 0 {
		t.used++
	}
	*s = tableSlot{key, place + 1}
}

// GetOrPut returns a key's value, inserting fresh if the key is missing.
func (t *Table) GetOrPut(key uint64, fresh int32) (place int32, isNew bool) {
	if 4*(t.used+1) > 3*len(t.slots) {
		if place, ok := t.Get(key); ok {
			return place, false
		}
		t.resizeSlots(max(8, 2*len(t.slots)))
	}
	s := &t.slots[t.findSlot(key)]
	if s.valuePlusOne != 0 {
		return s.valuePlusOne - 1, false
	}
	t.used++
	*s = tableSlot{key, fresh + 1}
	return fresh, true
}

func (t *Table) DeleteKey(key uint64) {
	if t.used == 0 {
		return
	}
	i, mask := t.findSlot(key), len(t.slots)-1
	if t.slots[i].valuePlusOne == 0 {
		return
	}
	t.used--
	for k := (i + 1) & mask; t.slots[k].valuePlusOne != 0; k = (k + 1) & mask {
		if home := t.homeSlot(t.slots[k].key); (k-home)&mask >= (k-i)&mask {
			t.slots[i], i = t.slots[k], k
		}
	}
	t.slots[i] = tableSlot{}
	if len(t.slots) > 64 && 8*t.used < len(t.slots) {
		t.resizeSlots(len(t.slots) / 2)
	}
}

// resizeSlots rebuilds the table with so many slots, a power of two.
func (t *Table) resizeSlots(slots int) {
	old := t.slots
	t.slots, t.shift = make([]tableSlot, slots), uint8(64-bits.TrailingZeros(uint(slots)))
	for i := range old {
		if old[i].valuePlusOne != 0 {
			t.slots[t.findSlot(old[i].key)] = old[i]
		}
	}
}

// newHashTable returns a table with room for so many keys.
func newHashTable(keys int) Table {
	t := Table{}
	slots := 8
	for 3*slots < 4*keys {
		slots *= 2
	}
	t.resizeSlots(slots)
	return t
}
