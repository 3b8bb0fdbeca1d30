// Package prefix records which workers have which beginnings of prompts cached.
//
// An Index has, for each worker, the blocks of the prompts that it was sent, as far back as its cache is estimated to
// reach. For workers whose engines report their cache, package kvmirror makes the index exact (see
// Index.EnableExactMode). HotPrefixes finds the prefixes that are worth reporting to other tiers. SuffixHitRate measures
// how much of a prompt is cached after the longest prefix that the index has.
//
// The package never keeps a prompt, only hashes of its blocks. It has no clock, goroutine or lock; each value has one
// writer.
package prefix
