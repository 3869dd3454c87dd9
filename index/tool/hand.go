package tool

import "context"

type handKey struct{}

func WithDeliver(ctx context.Context, f func([]byte) bool) context.Context { return context.WithValue(ctx, handKey{}, f) }
func Deliver(ctx context.Context) func([]byte) bool {
	f, _ := ctx.Value(handKey{}).(func([]byte) bool)
	return f
}
