//! Reads the text that a P4 compiler writes of a program's tables.

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};

use crate::p4::config::v1::P4Info;

/// What a p4info's text says.
///
/// # Errors
/// What the text has that no p4info has, with its place, on one line.
pub fn parse(text: &str) -> Result<P4Info, String> {
    let pool = DescriptorPool::decode(DESCRIPTORS).map_err(|error| error.to_string())?;
    let message = pool.get_message_by_name("p4.config.v1.P4Info");
    let message = message.ok_or("this build knows no p4info")?;
    let parsed = DynamicMessage::parse_text_format(message, text)
        .map_err(|error| error.to_string().replace('\n', " "))?;
    P4Info::decode(parsed.encode_to_vec().as_slice()).map_err(|error| error.to_string())
}

/// The vendored files, compiled.
const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/p4.bin"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_p4info_is_read() {
        let text = r#"
            pkg_info { arch: "v1model" }
            tables {
              preamble { id: 33574068 name: "WeftIngress.identity.rows" alias: "rows" }
              match_fields { id: 1 name: "job" bitwidth: 16 match_type: EXACT }
              size: 1024
            }
        "#;
        let info = parse(text).unwrap();
        assert_eq!(info.tables[0].match_fields[0].bitwidth, 16);
        assert_eq!(info.tables[0].preamble.as_ref().unwrap().alias, "rows");
    }

    #[test]
    fn what_is_no_p4info_is_refused_with_its_place() {
        let error = parse("tables { size: 1024 ").unwrap_err();
        assert!(!error.contains('\n'), "{error}");
        assert!(parse("tabels { }").unwrap_err().contains("tabels"));
    }
}
