// A complete Windlass worker without dependencies: several jobs at once, heartbeats, an orderly stop.
//
//	WINDLASS_SERVER=http://127.0.0.1:8080 go run .
//
// Add a function to handlers for each kind. It may run twice for one job: make its effect idempotent.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

const (
	slots    = 4
	stopTime = 20 * time.Second // after SIGTERM; then what still runs is given back
)

// errPermanent, wrapped in an error of a handler, means that the job is not retried.
var errPermanent = errors.New("permanent")

// The context of a handler is cancelled when the lease is lost.
var handlers = map[string]func(context.Context, *job) (any, error){
	"email": func(_ context.Context, j *job) (any, error) {
		var payload struct{ To string }
		if err := json.Unmarshal(j.Payload, &payload); err != nil {
			return nil, fmt.Errorf("%w: %v", errPermanent, err)
		}
		log.Printf("job %d attempt %d: mail to %s", j.ID, j.Attempts, payload.To)
		return map[string]bool{"sent": true}, nil
	},
	"count": func(ctx context.Context, j *job) (any, error) {
		var payload struct{ Seconds int }
		if err := json.Unmarshal(j.Payload, &payload); err != nil {
			return nil, fmt.Errorf("%w: %v", errPermanent, err)
		}
		select {
		case <-time.After(time.Duration(payload.Seconds) * time.Second):
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	},
}

type job struct {
	ID                  int64           `json:"id"`
	Kind                string          `json:"kind"`
	Payload             json.RawMessage `json:"payload"`
	Attempts            int             `json:"attempts"`
	VisibilityTimeoutMs int64           `json:"visibility_timeout_ms"`
	Lease               struct {
		Token string `json:"token"`
	} `json:"lease"`
}

// refused is an answer that is not 2xx.
type refused struct {
	status int
	body   string
}

func (r *refused) Error() string { return fmt.Sprintf("%d: %s", r.status, r.body) }

var (
	server = env("WINDLASS_SERVER", "http://127.0.0.1:8080")
	client = &http.Client{Timeout: 40 * time.Second}
)

func env(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func post(ctx context.Context, path string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if token := os.Getenv("WINDLASS_TOKEN"); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return &refused{response.StatusCode, string(read)}
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(read, answer)
}

// report sends a verdict, again if it got no answer: the same verdict is accepted twice.
func (j *job) report(verdict string, body map[string]any) {
	body["token"] = j.Lease.Token
	for _, wait := range []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second} {
		err := post(context.Background(), fmt.Sprintf("/jobs/%d/%s", j.ID, verdict), body, nil)
		var no *refused
		if err == nil {
			return
		}
		if errors.As(err, &no) && no.status != http.StatusServiceUnavailable {
			log.Printf("job %d: %s: %v", j.ID, verdict, err)
			return
		}
		time.Sleep(wait)
	}
}

// keep sends heartbeats until ctx ends; it cancels the handler when the lease is lost.
func (j *job) keep(ctx context.Context, lost context.CancelFunc) {
	ticker := time.NewTicker(time.Duration(j.VisibilityTimeoutMs) * time.Millisecond / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := post(ctx, fmt.Sprintf("/jobs/%d/heartbeat", j.ID), map[string]any{"token": j.Lease.Token}, nil)
		var no *refused
		if errors.As(err, &no) && (no.status == http.StatusConflict || no.status == http.StatusNotFound) {
			lost()
			return
		}
	}
}

func (j *job) run(parent context.Context) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	go j.keep(ctx, cancel)
	result, err := handlers[j.Kind](ctx, j)
	switch {
	case parent.Err() != nil:
		j.report("release", map[string]any{}) // the next worker gets it now; not charged
	case ctx.Err() != nil: // the lease is lost: report nothing
	case err == nil:
		j.report("complete", map[string]any{"result": result})
	default:
		retryable := !errors.Is(err, errPermanent)
		j.report("fail", map[string]any{"error": err.Error(), "retryable": retryable})
	}
}

func main() {
	host, _ := os.Hostname()
	kinds := []string{}
	for kind := range handlers {
		kinds = append(kinds, kind)
	}
	stop, done := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer done()
	work, force := context.WithCancel(context.Background())
	defer force()
	free := make(chan struct{}, slots)
	var running sync.WaitGroup
	for stop.Err() == nil {
		free <- struct{}{} // waits for a free slot
		var answer struct {
			Jobs []*job `json:"jobs"`
		}
		poll := map[string]any{
			"worker": fmt.Sprintf("go-%s-%d", host, os.Getpid()), "queues": []string{"*"}, "kinds": kinds,
			"max": 1, "wait_ms": 10_000,
		}
		// Dropping a poll is safe: a job that was claimed for it is given back.
		if err := post(stop, "/jobs/poll", poll, &answer); err != nil && stop.Err() == nil {
			log.Printf("poll: %v; trying again", err)
			time.Sleep(time.Second)
		}
		if len(answer.Jobs) == 0 {
			<-free
			continue
		}
		running.Add(1)
		go func(j *job) {
			defer func() { <-free; running.Done() }()
			j.run(work)
		}(answer.Jobs[0])
	}
	time.AfterFunc(stopTime, force)
	running.Wait()
}
