//! The constants of the cost model: what a page, a byte and a value cost on these machines.
//!
//! Invariants (checked by [`Calibration::verify`], which every reader of a file calls)
//! - Every constant is finite and above zero.
//! - Every constant states whether it was measured here, and how; the defaults have `measured =
//!   false`.

use rackscan_fabric::Wire;
use serde::{Deserialize, Serialize};

/// One constant of the cost model. The unit is part of the field's name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// The value, in the unit that the field's name ends with.
    pub value: f64,
    /// Whether it was measured on the machines in use.
    pub measured: bool,
    /// How it was measured, or where the default comes from.
    pub how: String,
}

impl Constant {
    /// A constant that was measured here.
    #[must_use]
    pub fn measured(value: f64, how: impl Into<String>) -> Self {
        Self { value, measured: true, how: how.into() }
    }

    fn assumed(value: f64, how: &str) -> Self {
        Self { value, measured: false, how: how.to_owned() }
    }
}

/// What reading pages from a node's devices costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceCosts {
    /// Microseconds that one more read takes when many are in flight.
    pub page_us: Constant,
    /// Bytes a second of large reads.
    pub bytes_per_s: Constant,
}

/// What a wire costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireCosts {
    /// Microseconds from a request to its reply when nothing is read or computed.
    pub round_trip_us: Constant,
    /// Bytes a second of one-sided writes by a node.
    pub bytes_per_s: Constant,
}

/// What scanning costs on one core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuCosts {
    /// Nanoseconds to unpack an integer and compare it with a constant.
    pub value_ns: Constant,
    /// Nanoseconds to check and open a page, its checksum aside.
    pub page_ns: Constant,
    /// Nanoseconds to verify the checksum of a stored byte.
    pub stored_byte_ns: Constant,
    /// Nanoseconds to build a byte of the result.
    pub output_byte_ns: Constant,
}

/// The constants of the cost model, as `rackscan calibrate` measures and stores them (TOML).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The devices of a node.
    pub device: DeviceCosts,
    /// The `shm` wire.
    pub shm: WireCosts,
    /// The `tcp` wire.
    pub tcp: WireCosts,
    /// The `verbs` wire. Calibration files older than this wire lack the table.
    #[serde(default = "WireCosts::of_verbs")]
    pub verbs: WireCosts,
    /// A core of the engine.
    pub engine: CpuCosts,
    /// A core of a node.
    pub node: CpuCosts,
}

/// What is wrong with a calibration file.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationError {
    /// Not the TOML of a calibration.
    #[error("the calibration file is not valid: {0}; write a new one with `rackscan calibrate`")]
    Parse(#[from] Box<toml::de::Error>),
    /// A value no cost can have.
    #[error(
        "the calibration file is not valid: {name} is {found}, expected a finite number above 0; write a new one with `rackscan calibrate`"
    )]
    Value {
        /// The constant.
        name: &'static str,
        /// Its value.
        found: f64,
    },
    /// It could not be written as TOML.
    #[error("the calibration cannot be written as TOML: {0}")]
    Write(#[from] Box<toml::ser::Error>),
}

impl Default for Calibration {
    fn default() -> Self {
        let nvme = "an NVMe device behind virtio: 85 K reads of 4 KiB a second, 1-2 GB/s at 128 KiB";
        let packed = "Q6 and Q1 over packed columns, one core of a 2020s server";
        let cpu = || CpuCosts {
            value_ns: Constant::assumed(0.5, packed),
            page_ns: Constant::assumed(400.0, packed),
            stored_byte_ns: Constant::assumed(0.06, "crc32c with the CPU's own instruction"),
            output_byte_ns: Constant::assumed(0.5, packed),
        };
        Self {
            device: DeviceCosts {
                page_us: Constant::assumed(12.0, nvme),
                bytes_per_s: Constant::assumed(1.5e9, nvme),
            },
            shm: WireCosts {
                round_trip_us: Constant::assumed(20.0, "two thread wake-ups on one machine"),
                bytes_per_s: Constant::assumed(5e9, "a copy between mapped regions"),
            },
            tcp: WireCosts {
                round_trip_us: Constant::assumed(80.0, "loopback"),
                bytes_per_s: Constant::assumed(1.5e9, "loopback, one connection"),
            },
            verbs: WireCosts::of_verbs(),
            engine: cpu(),
            node: cpu(),
        }
    }
}

impl WireCosts {
    fn of_verbs() -> Self {
        let adapter = "an adapter of 100 Gb/s and two thread wake-ups";
        Self {
            round_trip_us: Constant::assumed(15.0, adapter),
            bytes_per_s: Constant::assumed(11e9, adapter),
        }
    }
}

impl Calibration {
    /// The costs of `wire`.
    #[must_use]
    pub fn wire(&self, wire: Wire) -> &WireCosts {
        match wire {
            Wire::Shm | Wire::Sim => &self.shm,
            Wire::Tcp => &self.tcp,
            Wire::Verbs => &self.verbs,
        }
    }

    /// Reads a calibration file's text.
    ///
    /// # Errors
    /// Unknown or missing keys (with line and column), and values no cost can have.
    pub fn from_toml(text: &str) -> Result<Self, CalibrationError> {
        let calibration: Self = toml::from_str(text).map_err(Box::new)?;
        calibration.verify()?;
        Ok(calibration)
    }

    /// The text of a calibration file.
    ///
    /// # Errors
    /// When it cannot be written as TOML.
    pub fn to_toml(&self) -> Result<String, CalibrationError> {
        Ok(toml::to_string_pretty(self).map_err(Box::new)?)
    }

    /// Checks that every constant is finite and above 0.
    ///
    /// # Errors
    /// The first constant that is not a finite number above 0.
    pub fn verify(&self) -> Result<(), CalibrationError> {
        for (name, constant) in self.constants() {
            if !constant.value.is_finite() || constant.value <= 0.0 {
                return Err(CalibrationError::Value { name, found: constant.value });
            }
        }
        Ok(())
    }

    /// Every constant with its full name.
    #[must_use]
    pub fn constants(&self) -> Vec<(&'static str, &Constant)> {
        vec![
            ("device.page_us", &self.device.page_us),
            ("device.bytes_per_s", &self.device.bytes_per_s),
            ("shm.round_trip_us", &self.shm.round_trip_us),
            ("shm.bytes_per_s", &self.shm.bytes_per_s),
            ("tcp.round_trip_us", &self.tcp.round_trip_us),
            ("tcp.bytes_per_s", &self.tcp.bytes_per_s),
            ("verbs.round_trip_us", &self.verbs.round_trip_us),
            ("verbs.bytes_per_s", &self.verbs.bytes_per_s),
            ("engine.value_ns", &self.engine.value_ns),
            ("engine.page_ns", &self.engine.page_ns),
            ("engine.stored_byte_ns", &self.engine.stored_byte_ns),
            ("engine.output_byte_ns", &self.engine.output_byte_ns),
            ("node.value_ns", &self.node.value_ns),
            ("node.page_ns", &self.node.page_ns),
            ("node.stored_byte_ns", &self.node.stored_byte_ns),
            ("node.output_byte_ns", &self.node.output_byte_ns),
        ]
    }
}
