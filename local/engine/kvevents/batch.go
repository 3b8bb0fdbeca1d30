// Package kvevents follows the stream of KV cache events that vLLM, SGLang and others publish over ZeroMQ.
//
// A message has three frames: a topic, a sequence number (8 bytes, big endian) and a MessagePack batch
//
//	[seconds, [event, ...], data_parallel_rank]
//
// whose events are positional arrays, ["BlockStored", hashes, parent, tokens, block_size, lora_id, medium, lora_name,
// extra_keys, group_idx, spec_kind, sliding_window, locality], in older engines and maps of the same names with a
// "type" in newer ones. Both are decoded; unknown ones are skipped and counted. Hashes are integers or bytes and
// become 64-bit keys; tokens are not kept.
//
// # Order
//
// Sequence numbers count from 0. The next number is in order. A larger one is a gap, which the engine's replay socket
// fills if it is configured and still has the batches; otherwise the gap is reported to the sink. A number that goes
// back, or a port that refuses connections, means that the engine has restarted with an empty cache. A replay answers
// with two or three frames, because older engines omit the topic, and ends with number 2^64-1.
//
// # Bounds
//
// The package does not queue: the reading goroutine passes each batch to the sink. While the sink is busy the
// engine's own queue fills and finally loses batches, which shows as a gap. Lengths in messages are checked against
// the data, a prompt's tokens are not kept, and the package does not judge what a block is worth.
//
// The MessagePack reader is the package's own: it reads in place and skips tokens, so a step of 512 blocks takes 55 us
// and no allocation, where go-msgpack, which Raft uses, takes 1.5 ms and 17,400 allocations (BenchmarkDecodeBatch).
package kvevents

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// EventKind is the kind of an event.
type EventKind uint8

// Kinds of events. Events of other kinds are counted as ignored.
const (
	BlocksStored EventKind = iota + 1
	BlocksRemoved
	BlocksCleared
)

// CacheEvent is one change of an engine's cache on its GPU.
type CacheEvent struct {
	Kind EventKind
	// Hashes of the blocks, in the order of the prompt when they are stored.
	Hashes []uint64
	// Parent is the block before the first one, if HasParent.
	Parent    uint64
	HasParent bool
	// BlockTokens is how many tokens a stored block holds.
	BlockTokens int
	// Group is the cache group, for engines with several kinds of cache; -1 when none is named.
	Group int
}

// EventBatch holds the changes of one engine step.
type EventBatch struct {
	Events []CacheEvent
	// Rank of the data-parallel engine; -1 when none is named.
	Rank int
	// Ignored counts unknown events, and those of caches that are not on the GPU or hold no whole prefix.
	Ignored int
}

const (
	maxEvents = 1 << 16
	maxHashes = 1 << 18
	// maxBlockTokens is the largest accepted block size, in tokens.
	maxBlockTokens = 1 << 16
	maxRank        = 1 << 12
)

// Decoder decodes batches. Its results are valid until its next call.
type Decoder struct {
	batch  EventBatch
	hashes []uint64
	event  rawEvent
}

// rawEvent is one event as received, before validation.
type rawEvent struct {
	name        []byte
	hashStart   int // start of its hashes in the decoder's arena
	hashCount   int
	parent      uint64
	hasParent   bool
	blockTokens uint64
	medium      []byte
	group       int
	specKind    []byte
	locality    []byte
	malformed   bool
}

// DecodeBatch decodes the payload of one message.
func (d *Decoder) DecodeBatch(payload []byte) (*EventBatch, error) {
	p := msgpackReader{rest: payload}
	d.batch = EventBatch{Events: d.batch.Events[:0], Rank: -1}
	d.hashes = d.hashes[:0]
	if err := d.readEnvelope(&p); err != nil {
		return nil, fmt.Errorf("reading a batch of cache events: %w", err)
	}
	// The arena may have moved while it grew: set the events' slices only now.
	at := 0
	for i := range d.batch.Events {
		e := &d.batch.Events[i]
		n := len(e.Hashes)
		e.Hashes = d.hashes[at : at+n : at+n]
		at += n
	}
	return &d.batch, nil
}

func (d *Decoder) readEnvelope(p *msgpackReader) error {
	if n, ok := p.readArrayLength(); ok {
		for i := range n {
			switch i {
			case 1:
				if err := d.readEvents(p); err != nil {
					return err
				}
			case 2:
				d.readRank(p)
			default:
				p.skipValue()
			}
		}
		return p.checkEnd(n >= 2)
	}
	n, ok := p.readMapLength()
	if !ok {
		return errMalformedPack
	}
	found := false
	for range n {
		switch key, _ := p.readText(); string(key) {
		case "events":
			found = true
			if err := d.readEvents(p); err != nil {
				return err
			}
		case "data_parallel_rank":
			d.readRank(p)
		default:
			p.skipValue()
		}
	}
	return p.checkEnd(found)
}

func (p *msgpackReader) checkEnd(whole bool) error {
	if p.failed || !whole {
		return errMalformedPack
	}
	return nil
}

func (d *Decoder) readRank(p *msgpackReader) {
	if p.skipNil() {
		return
	}
	if r, ok := p.readInteger(); ok && r <= maxRank {
		d.batch.Rank = int(r)
		return
	}
	p.skipValue()
}

func (d *Decoder) readEvents(p *msgpackReader) error {
	n, ok := p.readArrayLength()
	if !ok || n > maxEvents {
		return fmt.Errorf("%w: no list of events, or one of more than %d", errMalformedPack, maxEvents)
	}
	for range n {
		d.readEvent(p)
		if p.failed {
			return errMalformedPack
		}
		if len(d.hashes) > maxHashes {
			return fmt.Errorf("%w: more than %d blocks", errMalformedPack, maxHashes)
		}
	}
	return nil
}

// readEvent reads one event of either form. An unknown one is skipped and counted.
func (d *Decoder) readEvent(p *msgpackReader) {
	d.event = rawEvent{hashStart: len(d.hashes), group: -1}
	if n, ok := p.readArrayLength(); ok {
		for i := range n {
			d.readPositional(p, i)
		}
	} else if n, ok := p.readMapLength(); ok {
		for range n {
			key, ok := p.readText()
			if !ok {
				p.skipValue()
			}
			d.readNamed(p, string(key))
		}
	} else {
		p.skipValue()
		d.event.malformed = true
	}
	if !p.failed {
		d.keepIfValid()
	}
}

// storedFields and removedFields are the names of the members of the positional form after the first.
func storedFields() []string {
	return []string{"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality"}
}

func removedFields() []string { return []string{"block_hashes", "medium", "group_idx", "locality"} }

func (d *Decoder) readPositional(p *msgpackReader, i int) {
	if i == 0 {
		d.readNamed(p, "type")
		return
	}
	var names []string
	switch string(d.event.name) {
	case "BlockStored":
		names = storedFields()
	case "BlockRemoved":
		names = removedFields()
	}
	name := ""
	if i <= len(names) {
		name = names[i-1]
	}
	d.readNamed(p, name)
}

func (d *Decoder) readNamed(p *msgpackReader, name string) {
	f := &d.event
	ok := true
	switch name {
	case "type":
		f.name, ok = p.readText()
	case "block_hashes":
		ok = d.readHashes(p)
	case "parent_block_hash":
		if !p.skipNil() {
			f.parent, ok = p.readHash()
			f.hasParent = ok
		}
	case "block_size":
		f.blockTokens, ok = p.readInteger()
	case "medium":
		ok = readOptional(p, &f.medium)
	case "kv_cache_spec_kind":
		ok = readOptional(p, &f.specKind)
	case "locality":
		ok = readOptional(p, &f.locality)
	case "group_idx":
		if !p.skipNil() {
			var g uint64
			if g, ok = p.readInteger(); ok && g < math.MaxInt16 {
				f.group = int(g)
			} else {
				f.malformed = true
			}
		}
	default:
		p.skipValue()
	}
	if !ok {
		p.skipValue()
		f.malformed = true
	}
}

func readOptional(p *msgpackReader, into *[]byte) (ok bool) {
	if p.skipNil() {
		return true
	}
	*into, ok = p.readText()
	return ok
}

func (d *Decoder) readHashes(p *msgpackReader) bool {
	n, ok := p.readArrayLength()
	if !ok {
		return false
	}
	d.hashes = d.hashes[:d.event.hashStart]
	for range n {
		h, ok := p.readHash()
		if !ok {
			p.skipValue()
			d.event.malformed = true
			continue
		}
		d.hashes = append(d.hashes, h)
	}
	d.event.hashCount = len(d.hashes) - d.event.hashStart
	return true
}

// keepIfValid keeps the event, or drops its hashes.
func (d *Decoder) keepIfValid() {
	f := &d.event
	e := CacheEvent{Hashes: d.hashes[f.hashStart : f.hashStart+f.hashCount], Group: f.group}
	switch string(f.name) {
	case "BlockStored":
		e.Kind, e.Parent, e.HasParent, e.BlockTokens = BlocksStored, f.parent, f.hasParent, int(min(f.blockTokens, maxBlockTokens+1))
		f.malformed = f.malformed || f.hashCount == 0 || f.blockTokens == 0 || f.blockTokens > maxBlockTokens
	case "BlockRemoved":
		e.Kind = BlocksRemoved
		f.malformed = f.malformed || f.hashCount == 0
	case "AllBlocksCleared":
		e.Kind, e.Hashes = BlocksCleared, nil
		d.hashes = d.hashes[:f.hashStart]
	default:
		f.malformed = true
	}
	if f.malformed || !f.isOnGPU() || !f.coversWholePrefix() {
		d.hashes = d.hashes[:f.hashStart]
		d.batch.Ignored++
		return
	}
	d.batch.Events = append(d.batch.Events, e)
}

// isOnGPU reports whether the block is in the memory of the engine's own GPU, where a hit costs nothing.
func (f *rawEvent) isOnGPU() bool {
	return (len(f.medium) == 0 || bytes.EqualFold(f.medium, []byte("GPU"))) && !bytes.EqualFold(f.locality, []byte("REMOTE"))
}

// coversWholePrefix reports whether the block's cache keeps prompts from their beginning. A sliding window or a
// recurrent state gives no information about prefixes.
func (f *rawEvent) coversWholePrefix() bool {
	s := strings.ToLower(string(f.specKind))
	return !strings.Contains(s, "sliding") && !strings.Contains(s, "mamba") && !strings.Contains(s, "chunked")
}
