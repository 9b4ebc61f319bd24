package main

import (
	"encoding/binary"
	"math/bits"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The hash is that of ../client/src/checksum.rs.
const (
	hashFirst  uint64 = 0xd6e8_feb8_6659_fd93
	hashStep   uint64 = 0x9e37_79b9_7f4a_7c16
	hashLength uint64 = 0xc2b2_ae3d_27d4_eb4f
)

func hashBytes(b []byte) uint64 {
	if b == nil {
		return 0
	}
	sum := (uint64(len(b)) + 1) * hashLength
	factor := hashFirst
	for ; len(b) >= 8; b = b[8:] {
		sum += binary.LittleEndian.Uint64(b) * factor
		factor += hashStep
	}
	if len(b) > 0 {
		var word [8]byte
		copy(word[:], b)
		sum += binary.LittleEndian.Uint64(word[:]) * factor
	}
	return sum
}

func mix(hash, part uint64) uint64 {
	return (bits.RotateLeft64(hash, 29) ^ part) * hashLength
}

func hashRecord(r *kgo.Record) uint64 {
	hash := uint64(r.Timestamp.UnixMilli()) * hashFirst
	hash = mix(hash, hashBytes(r.Key))
	hash = mix(hash, hashBytes(r.Value))
	for _, header := range r.Headers {
		hash = mix(hash, hashBytes([]byte(header.Key)))
		hash = mix(hash, hashBytes(header.Value))
	}
	return hash ^ hash>>32
}

// tracker knows which records were settled for good, one bit per offset.
type tracker struct {
	partitions     map[int32]*[]uint64
	settled, again int64
	checksum       uint64
}

func newTracker() *tracker { return &tracker{partitions: make(map[int32]*[]uint64)} }

func (t *tracker) partition(partition int32) *[]uint64 {
	marks, ok := t.partitions[partition]
	if !ok {
		marks = new([]uint64)
		t.partitions[partition] = marks
	}
	return marks
}

func (t *tracker) settle(marks *[]uint64, offset int64, hash uint64) {
	word, bit := int(offset/64), uint64(1)<<(offset%64)
	if word >= len(*marks) {
		*marks = append(*marks, make([]uint64, word-len(*marks)+1024)...)
	}
	if (*marks)[word]&bit != 0 {
		t.again++
		return
	}
	(*marks)[word] |= bit
	t.settled++
	t.checksum += hash
}
