//! Writing the results of non-blocking commands into the output of a connection.
//!
//! A client of RESP3 gets a push message: name of the command, id of the client that sent it, its number there, and the
//! result. A client of RESP2 gets only the result. The layout is in `docs/nonblocking.md`.

use tierce_output::{Output, OwnedOutput};
use tierce_wire::resp::{Proto, ReplyDecoder, Value};

use crate::clients::Deferred;
use crate::error::CommandError;
use crate::reply::Reply;

/// Writes a result for its receiver, which now speaks `proto`.
pub fn write(output: &mut Output, proto: Proto, deferred: &Deferred, result: OwnedOutput) {
    let mut reply = Reply::new(output, proto);
    match (proto, deferred.proto()) {
        (Proto::Resp2, Proto::Resp2) => output.append(result),
        // The receiver has changed its protocol since the result was made.
        (Proto::Resp2, Proto::Resp3) => write_again(&mut reply, result),
        // Clients of RESP3 read RESP2 as well.
        (Proto::Resp3, _) => {
            reply.push(4);
            reply.bulk(deferred.command.as_bytes());
            reply.int(deferred.from.id as i64);
            reply.int(deferred.number as i64);
            output.append(result);
        }
    }
}

/// Rewrites a result encoded in RESP3 for a client of RESP2.
#[cold]
fn write_again(reply: &mut Reply<'_>, result: OwnedOutput) {
    let mut whole = Output::new();
    whole.append(result);
    if let Ok(Some((value, _))) = ReplyDecoder::new().decode(&whole.into_bytes()) {
        write_value(reply, &value);
    }
}

fn write_value(reply: &mut Reply<'_>, value: &Value) {
    match value {
        Value::Int(number) => reply.int(*number),
        Value::Bulk(bytes) => reply.bulk(bytes),
        Value::Double(number) => reply.double(*number),
        Value::Error(text) => {
            reply.error(&CommandError::text(String::from_utf8_lossy(text)));
        }
        Value::Array(values) => {
            reply.array(values.len());
            values.iter().for_each(|value| write_value(reply, value));
        }
        // Entries by stream, the only map among these results: an array of pairs in RESP2.
        Value::Map(pairs) => {
            reply.array(pairs.len());
            for (key, value) in pairs {
                reply.array(2);
                write_value(reply, key);
                write_value(reply, value);
            }
        }
        // The result of a timeout is a null array; no result has another null.
        _ => reply.null_array(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(result: &str) -> String {
        let mut output = Output::new();
        let result = OwnedOutput::from(result.as_bytes().to_vec().into_boxed_slice());
        write_again(&mut Reply::new(&mut output, Proto::Resp2), result);
        String::from_utf8(output.into_bytes()).expect("text")
    }

    #[test]
    fn results_in_resp3_are_written_again_as_resp2_has_them() {
        assert_eq!(again("*2\r\n$1\r\nq\r\n$0\r\n\r\n"), "*2\r\n$1\r\nq\r\n$0\r\n\r\n");
        assert_eq!(again("_\r\n"), "*-1\r\n");
        assert_eq!(again("*2\r\n$1\r\nz\r\n,1.5\r\n"), "*2\r\n$1\r\nz\r\n$3\r\n1.5\r\n");
        assert_eq!(again("%1\r\n$1\r\ns\r\n*0\r\n"), "*1\r\n*2\r\n$1\r\ns\r\n*0\r\n");
        assert_eq!(again("-WRONGTYPE no\r\n"), "-WRONGTYPE no\r\n");
    }
}
