# Uses a server through Sidekiq. Usage: clients_of_redis.rb PORT job|scheduled
require "sidekiq"
require "sidekiq/api"
require "sidekiq/fetch"
require "sidekiq/scheduled"

port, what = ARGV
Redis.silence_deprecations = true
Sidekiq.configure_client { |config| config.redis = { url: "redis://127.0.0.1:#{port}" } }

class Product
  include Sidekiq::Worker
end

def check(got, expected)
  raise "expected #{expected.inspect}, got #{got.inspect}" unless got == expected
end

# The job that a worker takes from the queue.
def taken
  work = Sidekiq::BasicFetch.new(queues: ["default"]).retrieve_work
  raise "no job" unless work
  Sidekiq.load_json(work.job).slice("class", "args")
end

if what == "job"
  Product.perform_async(6, 7)
  check(Sidekiq::Queue.new.size, 1)
else
  Product.perform_at(Time.now + 3600, 1, 1)
  Sidekiq.redis { |r| r.zadd("schedule", 1, r.zrange("schedule", 0, 0).first, xx: true) }
  Sidekiq::Scheduled::Enq.new.enqueue_jobs(["schedule"])
end
check(taken, { "class" => "Product", "args" => what == "job" ? [6, 7] : [1, 1] })
