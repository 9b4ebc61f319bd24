// franz-go as a share consumer, for the benches. See ../client/src/lib.rs for what clients say to the harness.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type options struct {
	servers, topic, group, mode                                                  string
	records, poll, members, handlerMs, inFlight, rate, seconds, warm, partitions int
	mixed                                                                        bool
}

func main() {
	var o options
	flag.StringVar(&o.servers, "servers", "", "bootstrap servers")
	flag.StringVar(&o.topic, "topic", "", "topic")
	flag.StringVar(&o.group, "group", "", "share group")
	flag.StringVar(&o.mode, "mode", "fast", "fast or commit")
	flag.IntVar(&o.records, "records", 0, "ends after so many distinct records")
	flag.IntVar(&o.poll, "poll", 500, "most records of a poll")
	flag.IntVar(&o.members, "members", 1, "consumers in this process")
	flag.IntVar(&o.handlerMs, "handler-ms", 0, "what a handler takes")
	flag.IntVar(&o.inFlight, "in-flight", 64, "handlers at a time")
	flag.IntVar(&o.rate, "rate", 0, "records per second of the latency mode")
	flag.IntVar(&o.seconds, "seconds", 10, "how long the latency is measured")
	flag.IntVar(&o.warm, "warm", 5, "how long the traffic flows before")
	flag.IntVar(&o.partitions, "partitions", 4, "partitions of the topic")
	// A value of its own, as the other clients take it; Go's boolean flags want "=".
	flag.Func("mixed", "accept, release and reject 90 to 8 to 2", func(value string) error {
		o.mixed = value == "true"
		return nil
	})
	flag.Parse()
	if o.rate > 0 {
		latency(o)
	} else {
		drain(o)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// open gives a consumer, and how many of its acknowledgements failed.
func open(o options) (*kgo.Client, *atomic.Int64) {
	failed := new(atomic.Int64)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(o.servers, ",")...),
		kgo.ShareGroup(o.group),
		kgo.ConsumeTopics(o.topic),
		kgo.ShareMaxRecords(int32(o.poll)),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			if err := results.Error(); err != nil {
				log.Print(err)
				failed.Add(1)
			}
		}),
	)
	if err != nil {
		log.Fatal(err)
	}
	return client, failed
}

type progress struct {
	wanted  int64
	settled atomic.Int64
	once    sync.Once
	first   time.Time
	stop    context.CancelFunc
}

func (p *progress) hasRecords() {
	p.once.Do(func() {
		p.first = time.Now()
		fmt.Println("first")
	})
}

func (p *progress) add(records int64) {
	if p.settled.Add(records) >= p.wanted {
		p.stop()
	}
}

func drain(o options) {
	ctx, stop := context.WithCancel(context.Background())
	p := &progress{wanted: int64(o.records), stop: stop}
	trackers := make([]*tracker, o.members)
	clients := make([]*kgo.Client, o.members)
	failures := make([]*atomic.Int64, o.members)
	for i := range clients {
		clients[i], failures[i] = open(o)
		trackers[i] = newTracker()
	}
	fmt.Println("ready")
	var members sync.WaitGroup
	for i, client := range clients {
		members.Go(func() { consume(ctx, o, client, trackers[i], p) })
	}
	members.Wait()
	seconds := time.Since(p.first).Seconds()
	var sum tracker
	for i, t := range trackers {
		if failed := failures[i].Load(); failed > 0 {
			log.Fatalf("%d acknowledgements failed", failed)
		}
		sum.settled += t.settled
		sum.again += t.again
		sum.checksum += t.checksum
	}
	fmt.Printf("done {\"records\":%d,\"again\":%d,\"checksum\":\"%016x\",\"seconds\":%.6f}\n",
		sum.settled, sum.again, sum.checksum, seconds)
}

func consume(ctx context.Context, o options, client *kgo.Client, t *tracker, p *progress) {
	slots := make(chan struct{}, o.inFlight)
	for ctx.Err() == nil {
		fetches := client.PollRecords(ctx, o.poll)
		if ctx.Err() == nil {
			fetches.EachError(func(topic string, partition int32, err error) { log.Fatal(topic, partition, err) })
		}
		if fetches.Empty() {
			continue
		}
		p.hasRecords()
		before := t.settled
		var handlers sync.WaitGroup
		fetches.EachPartition(func(records kgo.FetchTopicPartition) {
			marks := t.partition(records.Partition)
			for _, r := range records.Records {
				hash := hashRecord(r)
				how := kgo.AckAccept
				if o.mixed {
					how = decide(r)
				}
				if how != kgo.AckRelease {
					t.settle(marks, r.Offset, hash)
				}
				if o.handlerMs == 0 {
					r.Ack(how)
					continue
				}
				slots <- struct{}{}
				handlers.Go(func() {
					time.Sleep(time.Duration(o.handlerMs) * time.Millisecond)
					r.Ack(how)
					<-slots
				})
			}
		})
		handlers.Wait()
		if o.mode == "commit" {
			flush(client)
		}
		p.add(t.settled - before)
	}
	flush(client)
}

func flush(client *kgo.Client) {
	if err := client.FlushAcks(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func decide(r *kgo.Record) kgo.AckStatus {
	switch rest := r.Offset % 100; {
	case rest < 8 && r.DeliveryCount() <= 1:
		return kgo.AckRelease
	case rest >= 98:
		return kgo.AckReject
	}
	return kgo.AckAccept
}
