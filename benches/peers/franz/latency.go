package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// latency produces and consumes in one process: time from send to the acknowledgement's answer.
func latency(o options) {
	client, failed := open(o)
	origin := time.Now()
	var total, from atomic.Int64
	total.Store(1 << 62)
	go produce(o, origin, &total, &from)
	t := newTracker()
	length := time.Duration(o.seconds) * time.Second
	var delivered, acknowledged []time.Duration
	var sent []time.Duration
	hasBegun := false
	for t.settled < total.Load() {
		fetches := client.PollRecords(context.Background(), o.poll)
		fetches.EachError(func(topic string, partition int32, err error) { log.Fatal(topic, partition, err) })
		if fetches.Empty() {
			continue
		}
		at := time.Since(origin)
		// What is measured begins when traffic has flowed for a while since the first record arrived.
		from.CompareAndSwap(0, int64(at)+int64(o.warm)*int64(time.Second))
		begin := time.Duration(from.Load())
		sent = sent[:0]
		fetches.EachRecord(func(r *kgo.Record) {
			r.Ack(kgo.AckAccept)
			t.settle(t.partition(r.Partition), r.Offset, 0)
			sent = append(sent, time.Duration(binary.LittleEndian.Uint64(r.Value)))
		})
		flush(client)
		answered := time.Since(origin)
		for _, sent := range sent {
			if sent < begin || sent >= begin+length {
				continue
			}
			if !hasBegun {
				hasBegun = true
				fmt.Println("first")
			}
			delivered = append(delivered, at-sent)
			acknowledged = append(acknowledged, answered-sent)
		}
	}
	if failed := failed.Load(); failed > 0 {
		log.Fatalf("%d acknowledgements failed", failed)
	}
	fmt.Printf("done {\"samples\":%d,\"again\":%d,%s,%s}\n", len(acknowledged), t.again,
		percentiles("", acknowledged), percentiles("delivered_", delivered))
}

func percentiles(kind string, times []time.Duration) string {
	slices.Sort(times)
	ms := func(part float64) float64 {
		if len(times) == 0 {
			return 0
		}
		return float64(times[min(int(float64(len(times))*part), len(times)-1)]) / 1e6
	}
	return fmt.Sprintf("\"%sp50_ms\":%.4f,\"%sp99_ms\":%.4f,\"%sp999_ms\":%.4f,\"%smax_ms\":%.4f",
		kind, ms(0.5), kind, ms(0.99), kind, ms(0.999), kind, ms(1))
}

// produce sends records at a rate, each with the time when it was sent, until those to be measured are sent, and
// says how many there are in all.
func produce(o options, origin time.Time, total, from *atomic.Int64) {
	producer, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(o.servers, ",")...),
		kgo.DefaultProduceTopic(o.topic),
		kgo.ProducerLinger(0),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		log.Fatal(err)
	}
	perTick := (o.rate + 999) / 1000
	ticks := time.NewTicker(time.Second * time.Duration(perTick) / time.Duration(o.rate))
	begun := time.Now()
	send := func(partition int, stamp time.Duration) {
		value := make([]byte, 256)
		binary.LittleEndian.PutUint64(value, uint64(stamp))
		record := &kgo.Record{Partition: int32(partition), Value: value}
		producer.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			if err != nil {
				log.Fatal(err)
			}
		})
	}
	isOver := func() bool {
		begin := from.Load()
		return begin > 0 && time.Since(origin) >= time.Duration(begin)+time.Duration(o.seconds)*time.Second
	}
	index := 0
	for !isOver() {
		<-ticks.C
		// A ticker drops ticks; what they missed is sent now.
		due := int(time.Since(begun) * time.Duration(o.rate) / time.Second)
		for ; index < due; index++ {
			send(index%o.partitions, time.Since(origin))
		}
	}
	total.Store(int64(index) + 1)
	send(0, 0)
	if err := producer.Flush(context.Background()); err != nil {
		log.Fatal(err)
	}
}
